# Completion of a command line for bash, zsh and fish, from what a program prints as --help.
#
# usage: PROGRAM --help | awk -v shell=bash|zsh|fish -v program=NAME -f completion.awk
#
# An option stands in a line, behind blanks: `--size SIZE  text`.  The name of its value says what
# completes it: FILE or PATH a file, PID a process that vmrun runs, words between bars one of them,
# and URL the kinds of URLs with which the next lines begin.  The usage of a program with commands
# has a line for each, as `vmctl PID stats [--json]`, with its options.  PROGRAM in the usage stands
# for another command line.

/^(Usage:|      ) *[a-z]/ && !described { usage($0); next }
/^ *(-[a-z], )?--[a-z]/ { option($0); next }
/^ +[a-z+]+:[A-Z\/]/ && valueof[last] == "URL" { scheme($1); next }
/^  / && last && !text[last] { text[last] = shortened($0) }
/^[A-Z]/ { described = 1 }
END {
	if (shell == "bash")
		bash()
	else if (shell == "zsh")
		zsh()
	else
		fish()
}

function usage(line,    n, i, c, words) {
	sub(/^Usage:/, "", line)
	gsub(/[][|]/, " ", line)
	another = another || line ~ / PROGRAM /
	n = split(line, words)
	i = words[2] == "PID" ? 3 : 2
	c = words[i]
	if (c !~ /^[a-z]+$/)
		return
	if (!(c in ofpid))
		commands[++ncommands] = c
	ofpid[c] = i == 3
	for (i++; i <= n; i++)
		if (words[i] ~ /^(--)?[a-z]/)
			below[c] = below[c] " " words[i]
		else if (words[i] ~ /^NAME/)
			named[c] = words[i] ~ /=/ ? "=" : ""
}

# Several may stand in a line, of which only the last has a value.
function option(line,    name, short) {
	sub(/^ +/, "", line)
	while (match(line, /^--?[a-z-]+/)) {
		name = substr(line, 1, RLENGTH)
		line = substr(line, RLENGTH + 1)
		if (name ~ /^-[a-z]$/)
			short = name
		else
			last = options[++noptions] = name
		if (!sub(/^, ?/, "", line))
			break
	}
	shortof[last] = short
	if (match(line, /^(\[=[A-Z]+\]| [A-Z][A-Z=]*| [A-Za-z0-9]+(\|[A-Za-z0-9]+)+)( |$)/)) {
		optional[last] = substr(line, 1, 1) == "["
		valueof[last] = substr(line, 2, RLENGTH - 1)
		gsub(/[]= []/, "", valueof[last])
		line = substr(line, RLENGTH + 1)
	}
	text[last] = shortened(line)
}

function scheme(word) {
	match(word, /^[a-z+]+:\/*/)
	urls[last] = urls[last] " " substr(word, 1, RLENGTH)
}

# The first words of a description.
function shortened(line) {
	sub(/^ +/, "", line)
	sub(/[][;:(].*/, "", line)
	sub(/,? +$/, "", line)
	return line
}

# Of an option; those that share a line share the text of the last.  A quotation mark is written as
# within two others; not by gsub(), as awks differ in what backslashes mean there.
function quoted(i, mark,    line, rest, at) {
	while (!text[options[i]] && i < noptions)
		i++
	for (rest = text[options[i]]; (at = index(rest, "'")); rest = substr(rest, at + 1))
		line = line substr(rest, 1, at - 1) mark
	return line rest
}

# What completes the value of an option: words, file, pid; or there is nothing, or no value.
function kind(name) {
	if (name in urls || valueof[name] ~ /\|/)
		return "words"
	if (valueof[name] ~ /^(FILE|PATH)$/)
		return "file"
	return valueof[name] == "PID" ? "pid" : valueof[name] ? "nothing" : "none"
}

function words_of(name,    words) {
	words = name in urls ? urls[name] : valueof[name]
	gsub(/\|/, " ", words)
	sub(/^ /, "", words)
	return words
}

# Options that stand behind no command: all of a program without commands.
function everywhere(name,    i) {
	for (i = 1; i <= ncommands; i++)
		if (index(below[commands[i]] " ", " " name " "))
			return 0
	return 1
}

# Commands, or those of a process.
function commands_of(pid,    i, line) {
	for (i = 1; i <= ncommands; i++)
		if (ofpid[commands[i]] == pid)
			line = line " " commands[i]
	return substr(line, 2)
}

# --- bash ---

# A pattern of the options whose value must follow, or whose value has that kind.
function options_with(k,    i, name, line) {
	for (i = 1; i <= noptions; i++) {
		name = options[i]
		if (k ? kind(name) == k : valueof[name] && !optional[name])
			line = line "|" name
	}
	return substr(line, 2)
}

function arm(of, action) {
	if (of)
		printf "    %s) %s ;;\n", of, action
}

function bash(    i, f, c, pids, names, line) {
	f = "_" program
	gsub(/-/, "_", f)
	pids = "$(vmctl list 2>/dev/null | awk '$1 + 0 { print $1 }')"
	printf "# Completion of %s for bash, from its --help.\n%s()\n{\n", program, f
	# Bash splits at `=` and `:`, and wants what is behind them.
	printf "    local words cur option='' i reply='' %s\n", another ? "from=0" : "given=()"
	print "    read -ra words <<<\"${COMP_LINE:0:COMP_POINT}\""
	print "    [[ ${COMP_LINE:0:COMP_POINT} != *[[:blank:]] ]] || words+=('')"
	print "    cur=${words[${#words[@]} - 1]}"
	print "    for ((i = 1; i < ${#words[@]} - 1; i++)); do"
	print "        case ${words[i]} in"
	if (options_with(""))
		printf "        %s) option=${words[i++]} ;;\n", options_with("")
	if (another)
		print "        --) from=$((i + 1)) && break ;;"
	print "        -*) ;;"
	printf "        *) %s ;;\n", another ? "from=$i && break" : "given+=(\"${words[i]}\")"
	print "        esac"
	print "    done"
	print "    # Whose value is being typed: the last option, or the one before `=`."
	print "    ((i == ${#words[@]})) || option=''"
	print "    [[ -n $option || $cur != --*=* ]] || option=${cur%%=*}"
	print "    [[ $cur != --*=* ]] || cur=${cur#*=}"
	print "    COMPREPLY=()"
	if (another) {
		print "    if ((from > 0)); then"
		print "        # Another command line; of an older completion that cannot: files."
		print "        compopt -o default"
		print "        if ((from == ${#words[@]} - 1)); then"
		print "            mapfile -t COMPREPLY < <(compgen -c -- \"$cur\")"
		print "        elif declare -F _command_offset >/dev/null; then"
		print "            for ((i = 1; i < COMP_CWORD; i++)); do"
		print "                [[ ${COMP_WORDS[i]} != \"${words[from]}\" ]] || break"
		print "            done"
		print "            _command_offset $i"
		print "        fi"
		print "        return"
		print "    fi"
	}
	print "    case $option in"
	arm(options_with("file"), "compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- \"$cur\"); return")
	arm(options_with("pid"), "reply=\"" pids "\"")
	for (i = 1; i <= noptions; i++)
		if (kind(options[i]) == "words")
			arm(options[i], "reply='" words_of(options[i]) "'")
	arm(options_with("nothing"), "return")
	print "    *)"
	for (i = 1; i <= noptions; i++)
		if (everywhere(options[i]))
			line = line " " options[i] (shortof[options[i]] ? " " shortof[options[i]] : "")
	printf "        reply='%s'\n", substr(line, 2)
	if (ncommands) {
		printf "        [[ -n ${given[0]-} ]] || reply+=\" %s %s\"\n", commands_of(0), pids
		print "        case ${given[0]-}/${given[1]-} in"
		printf "        [0-9]*/) reply+=' %s' ;;\n", commands_of(1)
		for (i = 1; i <= ncommands; i++) {
			c = commands[i]
			line = ofpid[c] ? "[0-9]*/" c : c "/*"
			if (c in named)
				names = " $(vmctl \"${given[0]}\" get 2>/dev/null | " \
					"awk -F= '{ print $1 \"" named[c] "\" }')"
			printf "        %s) reply+=\"%s%s\" ;;\n", line, below[c], c in named ? names : ""
		}
		print "        esac"
	}
	if (another)
		print "        [[ $cur == -* ]] || { compopt -o default; reply=$(compgen -c -- \"$cur\"); }"
	print "        ;;"
	print "    esac"
	print "    mapfile -t COMPREPLY < <(compgen -W \"$reply\" -- \"$cur\")"
	print "    [[ ${COMPREPLY[*]-} != *[:/=] ]] || compopt -o nospace"
	print "    COMPREPLY=(\"${COMPREPLY[@]#\"${cur%\"${cur##*[:=]}\"}\"}\")"
	printf "}\ncomplete -F %s %s\n", f, program
}

# --- zsh ---

function zsh_spec(i,    name, k, line) {
	name = options[i]
	k = kind(name)
	line = name (k == "none" ? "" : optional[name] ? "=-" : "=") "[" quoted(i, "'\\''") "]"
	if (k != "none") {
		line = line (optional[name] ? "::" : ":") tolower(valueof[name] ~ /\|/ ? "how" : valueof[name])
		k = k == "file" ? "_files" : k == "pid" ? "_vmrun_pids" : k == "words" ? \
			"(" words_of(name) ")" : ""
		if (k ~ /^\(/)
			gsub(/:/, "\\:", k)
		line = line ":" k
	}
	return "'*" line "'"
}

function zsh(    i) {
	printf "#compdef %s\n# Completion of %s for zsh, from its --help.\n\n", program, program
	print "_vmrun_pids() { compadd -- ${(f)\"$(vmctl list 2>/dev/null | awk '$1 + 0 { print $1 }')\"} }"
	if (ncommands) {
		print "_vmrun_first() { _vmrun_pids; compadd -- " commands_of(0) " }"
		print "_vmrun_second() {"
		printf "    [[ ${words[2]} == [0-9]* ]] && compadd -- %s\n}\n", commands_of(1)
	}
	print "_arguments -S -s \\"
	for (i = 1; i <= noptions; i++) {
		printf "    %s \\\n", zsh_spec(i)
		if (shortof[options[i]])
			printf "    '*%s[%s]' \\\n", shortof[options[i]], quoted(i, "'\\''")
	}
	if (another)
		print "    '(-)1:program:_command_names -e' '*::argument:_normal'"
	else if (ncommands)
		print "    '1:process:_vmrun_first' '2:command:_vmrun_second'"
	else
		print "    '*:host:_hosts'"
}

# --- fish ---

function fish(    i, name, k, line, c) {
	printf "# Completion of %s for fish, from its --help.\n", program
	for (i = 1; i <= noptions; i++) {
		name = options[i]
		line = "complete -c " program " -l " substr(name, 3)
		if (shortof[name])
			line = line " -s " substr(shortof[name], 2)
		k = kind(name)
		if (k == "file" && !optional[name])
			line = line " -r -F"
		else if (k != "none" && !optional[name])
			line = line " -x"
		if (k == "words")
			line = line " -a '" words_of(name) "'"
		if (k == "pid")
			line = line " -a '(vmctl list 2>/dev/null | string match -r \"[0-9]+\")'"
		printf "%s -d '%s'\n", line, quoted(i, "\\'")
	}
	if (another) {
		# With the options whose next word is no program; `--` keeps fish from dropping them.
		line = options_with("")
		gsub(/\|/, " ", line)
		printf "complete -c %s -x -a '(__fish_complete_subcommand -- %s)'\n", program, line
	}
	if (ncommands) {
		printf "complete -c %s -f -n 'test (count (commandline -opc)) -eq 1' -a '%s %s'\n", program, \
			commands_of(0), "(vmctl list 2>/dev/null | string match -r \"[0-9]+\")"
		printf "complete -c %s -f -n 'test (count (commandline -opc)) -eq 2; and not contains -- (commandline -opc)[2] %s' -a '%s'\n", \
			program, commands_of(0), commands_of(1)
	}
}
