# How pictures of bench/run look: a small SVG that can be read on white and on dark pages. report.py
# loads this, then plots.
set encoding utf8
set terminal svg size wide, high dynamic rounded font 'sans-serif,11' background rgb '#ffffff'
set border 3 linecolor rgb '#666666'
set tics nomirror scale 0.5
set grid ytics linecolor rgb '#dddddd' linetype 1
set style fill solid noborder
set style data linespoints
set key top outside horizontal left samplen 1.5
set boxwidth 0.9
set style histogram clustered gap 1
set datafile missing '-'
set yrange [0:*]

# Colours that differ for most eyes, also in grey (Okabe and Ito's).
set linetype 1 linecolor rgb '#0072b2' linewidth 2 pointtype 7 pointsize 0.5
set linetype 2 linecolor rgb '#e69f00' linewidth 2 pointtype 5 pointsize 0.5
set linetype 3 linecolor rgb '#009e73' linewidth 2 pointtype 9 pointsize 0.5
set linetype 4 linecolor rgb '#cc79a7' linewidth 2 pointtype 11 pointsize 0.5
set linetype 5 linecolor rgb '#56b4e9' linewidth 2 pointtype 13 pointsize 0.5
set linetype 6 linecolor rgb '#d55e00' linewidth 2 pointtype 6 pointsize 0.5
set linetype 7 linecolor rgb '#999999' linewidth 2 pointtype 4 pointsize 0.5
set linetype 8 linecolor rgb '#000000' linewidth 2 pointtype 8 pointsize 0.5
set linetype cycle 8
