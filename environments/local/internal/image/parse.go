package image

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// instruction is one line of a Dockerfile, with its continuations.
type instruction struct {
	line  int    // of its first line, from 1
	name  string // in capitals
	flags map[string]string
	rest  string   // what follows the flags
	list  []string // of the JSON form; nil: it is not in that form
}

// maxDockerfile is more than anybody writes.
const maxDockerfile = 1 << 20

// parse splits a Dockerfile into instructions.
func parse(r io.Reader) (all []instruction, err error) {
	s := bufio.NewScanner(io.LimitReader(r, maxDockerfile))
	s.Buffer(nil, maxDockerfile)
	escape := `\`
	head := true // parser directives stand before everything else
	var open strings.Builder
	line, first := 0, 0
	for s.Scan() {
		line++
		text := strings.TrimRight(strings.TrimPrefix(s.Text(), "\ufeff"), " \t\r")
		trimmed := strings.TrimLeft(text, " \t")
		if strings.HasPrefix(trimmed, "#") {
			if key, value, ok := strings.Cut(strings.TrimSpace(trimmed[1:]), "="); ok && head && strings.EqualFold(strings.TrimSpace(key), "escape") {
				escape = strings.TrimSpace(value)
			}
			continue // also between the lines of one instruction
		}
		if trimmed == "" && first == 0 {
			continue
		}
		head = false
		if first == 0 {
			first = line
		}
		if part, more := strings.CutSuffix(text, escape); more {
			open.WriteString(part)
			continue
		}
		open.WriteString(text)
		i, err := split(open.String(), first)
		if err != nil {
			return nil, err
		}
		all = append(all, i)
		open.Reset()
		first = 0
	}
	if first != 0 {
		i, err := split(open.String(), first)
		if err != nil {
			return nil, err
		}
		all = append(all, i)
	}
	return all, s.Err()
}

// split takes one instruction apart.
func split(text string, line int) (instruction, error) {
	i := instruction{line: line, flags: map[string]string{}}
	text = strings.TrimSpace(text)
	name, rest, _ := strings.Cut(text, " ")
	if tab, after, ok := strings.Cut(name, "\t"); ok {
		name, rest = tab, after+" "+rest
	}
	i.name, rest = strings.ToUpper(name), strings.TrimSpace(rest)
	for strings.HasPrefix(rest, "--") {
		flag, after, _ := strings.Cut(rest, " ")
		key, value, _ := strings.Cut(flag[2:], "=")
		i.flags[key], rest = value, strings.TrimSpace(after)
	}
	i.rest = rest
	if strings.Contains(rest, "<<") && (i.name == "COPY" || i.name == "ADD") {
		return i, fmt.Errorf("line %d: %s with a here-document is not read here", line, i.name)
	}
	if strings.HasPrefix(rest, "[") {
		if json.Unmarshal([]byte(rest), &i.list) != nil {
			i.list = nil // a shell's own bracket
		}
	}
	return i, nil
}

// words splits text like a shell, with variables of env filled in.
func words(text string, env func(string) (string, bool)) (all []string, err error) {
	var b strings.Builder
	started := false
	quote := byte(0)
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '\\' && quote != '\'' && i+1 < len(text):
			i++
			if quote == '"' && text[i] != '"' && text[i] != '\\' && text[i] != '$' {
				b.WriteByte('\\')
			}
			b.WriteByte(text[i])
			started = true
		case quote == 0 && (c == '\'' || c == '"'):
			quote, started = c, true
		case quote != 0 && c == quote:
			quote = 0
		case c == '$' && quote != '\'':
			value, n, err := variable(text[i:], env)
			if err != nil {
				return nil, err
			}
			b.WriteString(value)
			i += n - 1
			started = true
		case quote == 0 && (c == ' ' || c == '\t'):
			if started {
				all = append(all, b.String())
				b.Reset()
				started = false
			}
		default:
			b.WriteByte(c)
			started = true
		}
	}
	if quote != 0 {
		return nil, fmt.Errorf("a %c is not closed", quote)
	}
	if started {
		all = append(all, b.String())
	}
	return all, nil
}

// variable reads $NAME, ${NAME}, ${NAME:-word} or ${NAME:+word} at the start
// of text, and returns its value and length.
func variable(text string, env func(string) (string, bool)) (string, int, error) {
	name := func(s string) int {
		n := 0
		for n < len(s) && (s[n] == '_' || s[n] >= 'a' && s[n] <= 'z' || s[n] >= 'A' && s[n] <= 'Z' || n > 0 && s[n] >= '0' && s[n] <= '9') {
			n++
		}
		return n
	}
	if !strings.HasPrefix(text, "${") {
		n := name(text[1:])
		if n == 0 {
			return "$", 1, nil
		}
		value, _ := env(text[1 : 1+n])
		return value, 1 + n, nil
	}
	end := strings.IndexByte(text, '}')
	if end < 0 {
		return "", 0, fmt.Errorf("%q is not closed", text)
	}
	body := text[2:end]
	n := name(body)
	value, set := env(body[:n])
	switch op, word := body[n:], ""; {
	case n > 0 && op == "":
		return value, end + 1, nil
	case n > 0 && (strings.HasPrefix(op, ":-") || strings.HasPrefix(op, ":+")):
		word = op[2:]
		if strings.Contains(word, "$") {
			return "", 0, fmt.Errorf("%q: a variable within a variable is not read here", text[:end+1])
		}
		if present := set && value != ""; present == (op[1] == '+') {
			value = word
		}
		return value, end + 1, nil
	default:
		return "", 0, fmt.Errorf("%q is not a variable", text[:end+1])
	}
}
