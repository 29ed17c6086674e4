package main

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/yamltext"
)

// The fixed parts of a prompt.
const (
	introduction = `You work alone at a Linux terminal to carry out a task. Nobody answers questions; decide for yourself and go on until the task is done.

You cannot run anything directly. You say which keys to press, they are typed into the terminal, and after the time that you asked for you are shown what came. The terminal keeps its state: folder, variables, running programs and open editors stay as they are between your replies.
`

	formatJSON = `Reply with one JSON object and nothing else:

{
  "analysis": "what the terminal shows, and where the task stands",
  "plan": "what you do next, and why",
  "commands": [
    {"keystrokes": "ls -la\n", "duration": 0.2},
    {"keystrokes": "make test\n", "duration": 30}
  ],
  "task_complete": false
}

- "commands" is a list, typed in this order. It may be empty, to look again.
- "keystrokes" is typed exactly as it stands. A shell command needs \n at its end, or it is not run.
- "duration" is how many seconds to wait after it; 1 if you leave it out, 60 at most.
- "task_complete" is true only when the whole task is done; you may leave it out until then.
- Inside JSON strings write a new line as \n, a quote as \" and a backslash as \\.
`

	formatXML = `Reply with one <response> and nothing else:

<response>
<analysis>what the terminal shows, and where the task stands</analysis>
<plan>what you do next, and why</plan>
<commands>
<keystrokes duration="0.2">ls -la
</keystrokes>
<keystrokes duration="30">make test
</keystrokes>
</commands>
<task_complete>false</task_complete>
</response>

- <commands> holds what to type, in this order. It may be empty, to look again.
- The text of <keystrokes> is typed exactly as it stands, without any escapes: write < and & as they are. A shell command needs a line break at its end, before the closing tag, or it is not run.
- duration is how many seconds to wait after it; 1 if you leave it out, 60 at most.
- <task_complete> is true only when the whole task is done; you may leave it out until then.
`

	rules = `Keys that are no text are written by name, each as a command of its own: C-c, C-d, C-z, M-x, Enter, Escape, Tab, BSpace, Up, Down, Left, Right, Home, End, PageUp, PageDown, F1 to F12.

- Ask for as little waiting as makes sense: 0.1 for cd or ls, a few seconds for what computes, up to 60 for a build. If something is not finished, wait again with an empty list or empty keystrokes rather than starting it twice.
- Long output is shown by its beginning and its end. Send it to a file and look at parts of it if you need the middle.
- In a full-screen program (an editor, a pager) you are shown the screen as it is. Leave such programs before you type shell commands.
- Check your work before you say that the task is complete: run it, read it, test it.
`

	confirm = `You said that the task is complete. Your work will be judged as it stands now, and you cannot change anything afterwards.

This is the terminal:
%s

If everything that was asked for is really done, say again that the task is complete, and nothing else needs to be typed. Otherwise go on working.`

	unreadable = `Nothing was typed, because your last reply could not be used: %s

%s
Write the whole reply again in the form that was described.`

	cutOff = `it was cut off, because it was longer than one reply may be. Write a shorter one: type long files in several parts`
)

// prompt returns the first message of a conversation.
func (w *worker) prompt(instruction, prior, screen string) string {
	var b strings.Builder
	b.WriteString(introduction)
	b.WriteByte('\n')
	if w.c.Protocol == "xml" {
		b.WriteString(formatXML)
	} else {
		b.WriteString(formatJSON)
	}
	b.WriteByte('\n')
	b.WriteString(rules)
	b.WriteString("\nThe task:\n\n" + instruction + "\n")
	b.WriteString(w.servers)
	b.WriteString(w.skills)
	if prior != "" {
		b.WriteString("\nSomebody has worked on this before you. What was done, in short:\n\n" + prior + "\n")
	}
	fmt.Fprintf(&b, "\nThe terminal (%d lines of %d characters) shows:\n%s\n", w.c.Rows, w.c.Columns, screen)
	return b.String()
}

// servers describes the task's MCP servers, which are reached from the
// terminal.
func servers(list []agent.Server) string {
	if len(list) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("\nThe task comes with these MCP servers, which you can reach from the sandbox with a client of your own:\n")
	for _, s := range list {
		if s.Transport == "stdio" {
			argv := append([]string{s.Command}, s.Args...)
			for _, k := range slices.Backward(slices.Sorted(maps.Keys(s.Env))) {
				argv = append([]string{k + "=" + s.Env[k]}, argv...)
			}
			fmt.Fprintf(&b, "- %s: stdio, started as: %s\n", s.Name, strings.Join(argv, " "))
		} else {
			fmt.Fprintf(&b, "- %s: %s at %s\n", s.Name, s.Transport, s.URL)
		}
	}
	return b.String()
}

// Limits of skills: bytes of one file, and number of files.
const (
	maxSkill  = 64 << 10
	maxSkills = 100
)

// listSkills prints the skill files below its arguments, each followed by a
// zero byte. A folder is a skill or contains skills.
const listSkills = `for d; do for f in "$d"/SKILL.md "$d"/*/SKILL.md; do if [ -f "$f" ]; then printf '%s\000' "$f"; fi; done; done`

// skill is the header of a skill file.
type skill struct {
	Name        string `yaml:"name"`
	Description string `yaml:"description"`
}

var front = regexp.MustCompile(`(?s)\A\x{FEFF}?---\r?\n(.*?)\r?\n---`)

// skills describes the skills in the sandbox. It leaves out skills that cannot
// be read.
func skills(ctx context.Context, box sandbox.Shell, folders []string) (string, error) {
	if len(folders) == 0 {
		return "", nil
	}
	var found strings.Builder
	r, err := box.Exec(ctx, sandbox.Command{
		Argv: slices.Concat([]string{"sh", "-c", listSkills, "sh"}, folders), Stdout: &bounded{&found, maxSkill},
	})
	if err != nil || !r.OK() {
		return "", err
	}
	var b strings.Builder
	for n, path := range strings.Split(strings.TrimSuffix(found.String(), "\x00"), "\x00") {
		if n == maxSkills || path == "" {
			break
		}
		text, err := box.ReadFile(ctx, path, maxSkill)
		if err != nil {
			continue // not a regular file, or too large
		}
		var s skill
		if m := front.FindSubmatch(text); m == nil || yamltext.Unmarshal(m[1], false, &s) != nil || s.Name == "" {
			continue
		}
		fmt.Fprintf(&b, "<skill>\n<name>%s</name>\n<description>%s</description>\n<location>%s</location>\n</skill>\n", line(s.Name), line(s.Description), line(path))
	}
	if b.Len() == 0 {
		return "", nil
	}
	return "\nFor some work there are instructions in the sandbox. Read the file of a skill before you do what it is for.\n<available_skills>\n" + b.String() + "</available_skills>\n", nil
}

// line converts text to one line that cannot be taken for a tag.
func line(s string) string {
	s = strings.ToValidUTF8(strings.Join(strings.Fields(s), " "), "\uFFFD")
	return strings.NewReplacer("<", "&lt;", ">", "&gt;", "&", "&amp;").Replace(s)
}

// bounded keeps the first bytes that are written to it.
type bounded struct {
	to   *strings.Builder
	left int
}

func (w *bounded) Write(p []byte) (int, error) {
	n := min(len(p), w.left)
	w.to.Write(p[:n])
	w.left -= n
	return len(p), nil
}
