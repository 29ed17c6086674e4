// Package similarity measures how similar two pages are, element by element, from
// what was captured of them. It is pure: it opens no page.
package similarity

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Page is what was captured of a page: a state after it was loaded, and one after
// each of its actions, in order.
type Page struct {
	Version int     `json:"version"`
	States  []State `json:"states"`
}

// Version is that of the captures that are understood.
const Version = 1

// State are the elements of a page at one moment. Texts are numbers of Strings.
type State struct {
	Action     string     `json:"action,omitempty"` // what was done before; empty: the page was loaded
	Failed     string     `json:"failed,omitempty"` // why the action could not be done, or the page not be read
	Cut        bool       `json:"cut,omitempty"`    // the page has more elements
	Strings    []string   `json:"strings"`
	Properties []string   `json:"properties"` // of CSS, in the order of Styles
	Styles     [][]int    `json:"styles"`
	Elements   []*Element `json:"elements"`

	column map[string]int // of a property in Styles
}

// Element is one element below body.
type Element struct {
	ID          int64      `json:"id"`  // equal in two states: the same element
	Box         [4]float64 `json:"box"` // left, top, width and height in CSS pixels of the page
	Displayed   bool       `json:"displayed,omitempty"`
	Descendants int        `json:"descendants,omitempty"`
	TagName     int        `json:"tag"`
	TextIndex   int        `json:"text"`
	HTMLIndex   int        `json:"html"` // a digest of the outer HTML; below 0: it was not taken
	Pairs       []int      `json:"attributes,omitempty"`
	StyleIndex  int        `json:"style"` // below 0: none was taken

	of    *State
	words *words
}

// ErrPage means that a capture cannot be read.
var ErrPage = errors.New("the capture cannot be read")

// Read decodes a capture and checks it.
func Read(raw []byte) (*Page, error) {
	var p Page
	if err := json.Unmarshal(raw, &p); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPage, err)
	}
	if p.Version != Version || len(p.States) == 0 {
		return nil, fmt.Errorf("%w: it has version %d and %d states, want version %d", ErrPage, p.Version, len(p.States), Version)
	}
	for i := range p.States {
		if err := p.States[i].check(); err != nil {
			return nil, fmt.Errorf("%w: state %d: %w", ErrPage, i, err)
		}
	}
	return &p, nil
}

func (s *State) check() error {
	s.column = map[string]int{}
	for i, name := range s.Properties {
		s.column[name] = i
	}
	is := func(i, from int) bool { return i >= from && i < len(s.Strings) }
	for _, row := range s.Styles {
		if len(row) != len(s.Properties) || slices.ContainsFunc(row, func(i int) bool { return !is(i, 0) }) {
			return errors.New("a style does not fit the properties")
		}
	}
	for _, e := range s.Elements {
		switch {
		case e == nil:
			return errors.New("an element is null")
		case slices.ContainsFunc(e.Box[:], func(v float64) bool { return math.IsNaN(v) || math.Abs(v) > 1e9 }) || e.Box[2] < 0 || e.Box[3] < 0:
			return fmt.Errorf("element %d has the box %v", e.ID, e.Box)
		case !is(e.TagName, 0), !is(e.TextIndex, 0), !is(e.HTMLIndex, -1), e.StyleIndex < -1, e.StyleIndex >= len(s.Styles),
			len(e.Pairs)%2 != 0, slices.ContainsFunc(e.Pairs, func(i int) bool { return !is(i, 0) }), e.Descendants < 0:
			return fmt.Errorf("element %d names what is not there", e.ID)
		}
		e.of = s
	}
	return nil
}

// Text returns what the element shows.
func (e *Element) Text() string { return e.of.Strings[e.TextIndex] }

// Attribute returns an attribute, and whether the element has it.
func (e *Element) Attribute(name string) (string, bool) {
	for i := 0; i < len(e.Pairs); i += 2 {
		if e.of.Strings[e.Pairs[i]] == name {
			return e.of.Strings[e.Pairs[i+1]], true
		}
	}
	return "", false
}

// style returns a computed property of CSS, and whether it was taken.
func (e *Element) style(name string) (string, bool) {
	i, ok := e.of.column[name]
	if !ok || e.StyleIndex < 0 {
		return "", false
	}
	return e.of.Strings[e.of.Styles[e.StyleIndex][i]], true
}

// String names the element for people: div#menu.open.
func (e *Element) String() string {
	var name strings.Builder
	name.WriteString(strings.ToLower(e.of.Strings[e.TagName]))
	if id, ok := e.Attribute("id"); ok && id != "" {
		name.WriteString("#" + id)
	}
	if class, ok := e.Attribute("class"); ok {
		for c := range strings.FieldsSeq(class) {
			name.WriteString("." + c)
		}
	}
	return strings.ToValidUTF8(name.String()[:min(name.Len(), maxName)], "")
}

// maxName bounds how an element is named, in bytes.
const maxName = 100

func (e *Element) area() float64 { return e.Box[2] * e.Box[3] }

// counts reports whether an element can be seen at all.
func (e *Element) counts() bool { return e.Displayed && e.area() > leastArea }

// leastArea is the area that an element has at least to count, in square pixels.
const leastArea = 0.1
