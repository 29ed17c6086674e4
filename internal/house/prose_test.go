package house

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// Limits for documents: the width of a line, the lines of a paragraph and the
// words of a sentence.
const (
	maxColumns        = 100
	maxParagraphLines = 6
	maxSentenceWords  = 40
)

var (
	// sentenceEnd is where a sentence ends.
	sentenceEnd = regexp.MustCompile(`[.?!:;]["')*]*(?: |$)`)
	// item begins an element of a list.
	item = regexp.MustCompile(`^ {0,3}(?:[-*]|\d+\.) `)
	// code is a piece of code, which counts as one word.
	code = regexp.MustCompile("`[^`]*`")
	// target is the target of a link, which is not read.
	target = regexp.MustCompile(`\]\([^)]*\)`)
)

// prose returns the paragraphs and list items of a document, without code,
// tables, headings, comments and generated text.
func prose(text string) [][]string {
	var all [][]string
	var now []string
	end := func() {
		if now != nil {
			all = append(all, now)
		}
		now = nil
	}
	fence, generated := false, false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		switch trimmed := strings.TrimSpace(line); {
		case strings.HasPrefix(trimmed, "```"):
			fence = !fence
			end()
		case fence:
		case strings.HasPrefix(trimmed, "<!--"):
			generated = strings.Contains(trimmed, "generated")
			end()
		case generated, trimmed == "", strings.HasPrefix(trimmed, "|"), strings.HasPrefix(trimmed, "#"), strings.HasPrefix(trimmed, "!["):
			end()
		case now == nil && strings.HasPrefix(line, "    "): // code
		case item.MatchString(line):
			end()
			now = []string{line}
		default:
			now = append(now, line)
		}
	}
	end()
	return all
}

// unreadable reports what makes the prose of a document hard to read.
func unreadable(text string) []string {
	var faults []string
	for _, paragraph := range prose(text) {
		if len(paragraph) > maxParagraphLines {
			faults = append(faults, "paragraph of more than 6 lines: "+paragraph[0])
		}
		for _, line := range paragraph {
			if utf8.RuneCountInString(line) > maxColumns && strings.Contains(strings.TrimSpace(line), " ") {
				faults = append(faults, "line of more than 100 columns: "+line)
			}
		}
		joined := target.ReplaceAllString(code.ReplaceAllString(strings.Join(paragraph, " "), "code"), "]")
		for _, sentence := range sentenceEnd.Split(joined, -1) {
			if len(strings.Fields(sentence)) > maxSentenceWords {
				faults = append(faults, "sentence of more than 40 words: "+strings.TrimSpace(sentence))
			}
		}
	}
	return faults
}

// The documents at the top level and the pages of docs/, except the generated
// docs/reference, must stay readable.
func TestDocumentsAreReadable(t *testing.T) {
	t.Parallel()
	read := 0
	for _, f := range files(t, ".") {
		if dir := filepath.Dir(f.path); filepath.Ext(f.path) != ".md" || dir != "." && dir != "docs" {
			continue
		}
		read++
		for _, fault := range unreadable(f.text) {
			t.Errorf("%s: %s", f.path, fault)
		}
	}
	if read < 5 {
		t.Errorf("read %d pages, want those at the top and in docs/", read)
	}
}
