# Types a line and Tab into a zsh on a terminal, and prints what appears.
#
# usage: zsh -f tab.zsh FUNCTIONS LINE
zmodload zsh/zpty
zpty shell zsh -f
zpty -w shell "PS1= RPS1= fpath=($1 \$fpath); autoload -U compinit; compinit -u -D
setopt no_list_beep no_list_ambiguous; LISTMAX=1000; print re''ady"
while zpty -r shell seen && [[ $seen != *ready* ]]; do :; done
zpty -w -n shell "$2"$'\t'
sleep 1
while zpty -r -t shell seen; do print -r -- $seen; done
zpty -d shell
