package main

import (
	"bytes"
	"fmt"

	"github.com/berth-eval/berth/plugins/verifier"
)

// How much of the steps the first message has, in bytes: all of them up to
// maxSteps, or else whole lines of the beginning and the end.
const (
	maxSteps  = 81_920
	someSteps = 30_720
)

// excerpt keeps the beginning and the end of a text that comes in lines.
type excerpt struct {
	head, tail [][]byte // all of it while it is short enough
	headSize   int
	tailSize   int
	lines      int
	size       int
}

func (e *excerpt) add(line []byte) {
	line = append(bytes.Clone(line), '\n')
	e.lines++
	e.size += len(line)
	if e.headSize+len(line) <= someSteps && len(e.head) == e.lines-1 {
		e.head = append(e.head, line)
		e.headSize += len(line)
		return
	}
	e.tail = append(e.tail, line)
	e.tailSize += len(line)
	for e.size > maxSteps && e.tailSize > someSteps {
		e.tailSize -= len(e.tail[0])
		e.tail = e.tail[1:]
	}
}

// String returns the text, or whole lines of its beginning and end and between
// them a line that counts what is left out.
func (e *excerpt) String() string {
	left := ""
	if e.size > maxSteps {
		left = fmt.Sprintf("[%d lines, %d bytes left out: read them in attempt/steps.jsonl]\n", e.lines-len(e.head)-len(e.tail), e.size-e.headSize-e.tailSize)
	}
	return string(bytes.Join(e.head, nil)) + left + string(bytes.Join(e.tail, nil))
}

// steps returns the lines of the agent's steps, shortened.
func steps(r *verifier.Request) (string, error) {
	var e excerpt
	err := r.Lines("attempt/steps.jsonl", func(line []byte) {
		if s, ok := stepOf(line); ok && s.Stage == r.Stage && s.ofAgent() {
			e.add(line)
		}
	})
	return e.String(), err
}
