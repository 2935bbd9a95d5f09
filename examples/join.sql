-- A join of two tables of :rows rows each; a row of b finds its row of a in an order that is not
-- that of the keys.
create table a(k integer primary key, v text);
create table b(k int, w text);
with recursive n(i) as (select 1 union all select i + 1 from n where i < :rows)
    insert into a select i, 'value of ' || i || hex(i * 7919) || hex(i * 104729) from n;
insert into b select k * 7919 % :rows + 1, v from a;
select count(*), sum(length(v) + length(w)) from b join a on a.k = b.k;
