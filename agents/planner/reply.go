package main

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/berth-eval/berth/plugins/environment"
)

// parse returns the actions that a reply names. There is none if the reply is not
// in the form that was asked for.
func (c *Config) parse(reply string, offer []environment.Action) []environment.Call {
	strict := c.Parse == parseStrict
	switch c.format() {
	case formatList:
		if strict {
			return exactly(strings.Split(under("### Actions", reply), ","), offer)
		}
		return listed(reply, offer)
	case formatWord:
		if strict {
			return exactly([]string{under("# action", reply)}, offer)
		}
		return single(reply, offer)
	}
	if strict {
		return blocks(reply, offer)
	}
	return written(reply, offer)
}

// under returns what stands between a heading and the next such heading, and the
// whole reply without one.
func under(heading, reply string) string {
	if _, rest, ok := strings.Cut(reply, heading); ok {
		reply, _, _ = strings.Cut(rest, heading)
	}
	return reply
}

// exactly returns the actions with these names, without the space around them.
// Other words are left out.
func exactly(words []string, offer []environment.Action) (calls []environment.Call) {
	for _, word := range words {
		word = strings.TrimSpace(word)
		if len(calls) < maxActions && slices.ContainsFunc(offer, func(a environment.Action) bool { return a.Name == word }) {
			calls = append(calls, environment.Call{Name: word})
		}
	}
	return calls
}

// blocks reads what stands between pairs of three backquotes: a language on the
// first line, and then the file. The last block may be open. One in a language that
// cannot be written makes the reply unreadable.
func blocks(reply string, offer []environment.Action) (calls []environment.Call) {
	for i, part := range strings.Split(reply, "```") {
		if i%2 == 0 {
			continue
		}
		language, text, _ := strings.Cut(strings.TrimSpace(part), "\n")
		c := write(language, text, offer)
		if c == nil {
			return nil
		}
		calls = append(calls, *c)
	}
	return calls
}

// The headings under which actions stand.
var (
	headList = regexp.MustCompile(`(?im)^[ \t]*###[ \t]*actions?\b[ \t]*:?`)
	headWord = regexp.MustCompile(`(?im)^[ \t]*#+[ \t]*action\b[ \t]*:?`)
)

// after returns what stands under the last heading in a text.
func after(heading *regexp.Regexp, text string) (rest string, ok bool) {
	all := heading.FindAllStringIndex(text, -1)
	if len(all) == 0 {
		return "", false
	}
	return text[all[len(all)-1][1]:], true
}

// maxActions is how many actions of a reply are done.
const maxActions = 10_000

// listed reads names with commas between them: under the heading, else in the whole
// reply. Unknown words are left out.
func listed(reply string, offer []environment.Action) (calls []environment.Call) {
	rest, ok := after(headList, reply)
	if !ok {
		rest = reply
	}
	for word := range strings.FieldsFuncSeq(rest, func(r rune) bool { return r == ',' || r == '\n' }) {
		word = strings.Trim(word, " \t\r*`'\"[]().;-")
		i := slices.IndexFunc(offer, func(a environment.Action) bool { return strings.EqualFold(a.Name, word) })
		if i >= 0 && len(calls) < maxActions {
			calls = append(calls, environment.Call{Name: offer[i].Name})
		}
	}
	return calls
}

// single reads one name: under the heading, else in the whole reply. Where there
// are several names, none is meant.
func single(reply string, offer []environment.Action) []environment.Call {
	rest, ok := after(headWord, reply)
	if ok {
		for _, fold := range []bool{false, true} {
			if found := named(rest, offer, fold); len(found) == 1 {
				return []environment.Call{{Name: found[0]}}
			}
		}
	}
	if found := named(reply, offer, false); len(found) == 1 {
		return []environment.Call{{Name: found[0]}}
	}
	return nil
}

var word = regexp.MustCompile(`[\pL\pN_]+`)

// named returns the actions whose names are words of a text. With fold, upper and
// lower case are the same.
func named(text string, offer []environment.Action, fold bool) (names []string) {
	words := word.FindAllString(text, -1)
	for i := range offer {
		name := offer[i].Name
		if slices.ContainsFunc(words, func(w string) bool { return w == name || fold && strings.EqualFold(w, name) }) {
			names = append(names, name)
		}
	}
	return names
}

// languages are other names of the languages of code fences.
var languages = map[string]string{"js": "javascript", "htm": "html"}

// fence begins or ends a block of code.
var fence = regexp.MustCompile("^[ \t]*(```+|~~~+)[ \t]*([A-Za-z0-9_+-]*)")

// written reads blocks of code, each of which is what an action write_LANGUAGE
// writes. A block that does not end goes to the end of the reply.
func written(reply string, offer []environment.Action) (calls []environment.Call) {
	open, language := "", ""
	var text strings.Builder
	end := func() {
		if other, ok := languages[language]; ok {
			language = other
		}
		if c := write(language, text.String(), offer); c != nil {
			calls = append(calls, *c)
		}
		open = ""
		text.Reset()
	}
	for line := range strings.Lines(reply) {
		m := fence.FindStringSubmatch(line)
		switch {
		case open == "" && m != nil:
			open, language = m[1], strings.ToLower(m[2])
		case open != "" && m != nil && m[2] == "" && strings.HasPrefix(m[1], open):
			end()
		case open != "":
			text.WriteString(line)
		}
	}
	if open != "" {
		end()
	}
	return calls
}

// write returns the call that writes a text; nil: there is no action for it, or it
// takes something else than one text.
func write(language, text string, offer []environment.Action) *environment.Call {
	i := slices.IndexFunc(offer, func(a environment.Action) bool { return a.Name == "write_"+language })
	if i < 0 || strings.TrimSpace(text) == "" {
		return nil
	}
	var s struct {
		Properties map[string]struct {
			Type string `json:"type"`
		} `json:"properties"`
		Required []string `json:"required"`
	}
	if json.Unmarshal(offer[i].Schema, &s) != nil || len(s.Required) != 1 || s.Properties[s.Required[0]].Type != "string" {
		return nil
	}
	given, err := json.Marshal(map[string]string{s.Required[0]: text})
	if err != nil {
		return nil
	}
	return &environment.Call{Name: offer[i].Name, Arguments: given}
}
