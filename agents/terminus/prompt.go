package main

import (
	"fmt"
	"strings"
)

// The fixed parts of a prompt.
const (
	introduction = `You work alone at a Linux terminal to carry out a task. Questions are not answered; decide for yourself and continue until the task is done.

You cannot run anything directly. You say which keys to press, they are typed into the terminal, and after the time that you asked for you are shown what came. The terminal keeps its state: folder, variables, running programs and open editors stay as they are between your replies.
`

	form = `Reply with one JSON object and nothing else:

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

	rules = `Keys that are not text are written by name, each as a separate command: C-c, C-d, C-z, M-x, Enter, Escape, Tab, BSpace, Up, Down, Left, Right, Home, End, PageUp, PageDown, F1 to F12.

- Ask for as little waiting as makes sense: 0.1 for cd or ls, a few seconds for what computes, up to 60 for a build. If something is not finished, wait again with an empty list or empty keystrokes rather than starting it twice.
- Long output is shown by its beginning and its end. Send it to a file and look at parts of it if you need the middle.
- In a full-screen program (an editor, a pager) you are shown the screen as it is. Leave such programs before you type shell commands.
- Check your work before you say that the task is complete: run it, read it, test it.
`

	confirm = `You said that the task is complete. Your work will be judged as it stands now, and you cannot change anything afterwards.

This is the terminal:
%s

If everything that was asked for is really done, say again that the task is complete, and nothing else needs to be typed. Otherwise continue.`

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
	b.WriteString(form)
	b.WriteByte('\n')
	b.WriteString(rules)
	b.WriteString("\nThe task:\n\n" + instruction + "\n")
	b.WriteString(w.offers)
	if prior != "" {
		b.WriteString("\nAnother agent has worked on this before you. What was done, in short:\n\n" + prior + "\n")
	}
	fmt.Fprintf(&b, "\nThe terminal (%d lines of %d characters) shows:\n%s\n", rows, columns, screen)
	return b.String()
}
