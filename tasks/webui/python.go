package webui

import (
	"fmt"
	"strconv"
	"strings"
)

// function is a function of actions.py.
type function struct {
	name  string
	first string // its first parameter: the browser
	line  int
	body  []statement
}

// readPython reads actions.py: the functions that the list actions names. They may
// have the forms that element, chained and plain know, and nothing else. Other
// functions are not looked at.
func (b *builder) readPython(text string) {
	all, line, err := scanPython(text)
	if err != nil {
		b.bad(filePython, line, "Not Python that can be read", "%s.", err)
		return
	}
	functions := map[string]*function{}
	var list []token
	listed := 0
	for i := 0; i < len(all); {
		s := all[i]
		i++
		first := s.tokens[0]
		switch {
		case first.text == "import" || first.text == "from" || len(s.tokens) == 1 && first.kind == kindString:
		case first.text == "def":
			f := function{line: first.line}
			if len(s.tokens) < 5 || s.tokens[1].kind != kindName || s.tokens[2].text != "(" {
				b.bad(filePython, first.line, "Not a function that can be read", "A function is written as def name(driver): with its statements in lines below it.")
				return
			}
			f.name, f.first = s.tokens[1].text, s.tokens[3].text // without parameters it is ), which nothing refers to
			for i < len(all) && all[i].indent > s.indent {
				f.body = append(f.body, all[i])
				i++
			}
			if last := s.tokens[len(s.tokens)-1]; last.text != ":" {
				f.body = nil // it is on one line: no form
			}
			functions[f.name] = &f
		case len(s.tokens) > 3 && first.text == "actions" && s.tokens[1].text == "=" && s.tokens[2].text == "[":
			list, listed = s.tokens[3:], first.line
		default:
			b.bad(filePython, first.line, "Statement that is not known", "Besides imports and functions there is only actions = [name, …].")
		}
	}
	if listed == 0 {
		b.bad(filePython, 1, "The list of actions is missing", "Write actions = [name, …] with the names of functions, or an empty list.")
		return
	}
	b.listed(list, functions)
}

// listed adds the actions of the list.
func (b *builder) listed(list []token, functions map[string]*function) {
	for i, t := range list {
		switch f := functions[t.text]; {
		case t.text == "]" && i == len(list)-1:
			return
		case t.text == ",":
		case t.kind != kindName || f == nil:
			b.bad(filePython, t.line, "Not a function", "The list of actions has %q, which is the name of no function above.", t.text)
			return
		default:
			r := &reading{driver: f.first, values: map[string]value{}}
			for _, s := range f.body {
				if err := r.statement(s.tokens); err != nil {
					b.bad(filePython, s.tokens[0].line, "Statement that is not known", "%s. It can be written in %s, which counts if it is there.", err, fileActions)
					return
				}
			}
			if len(f.body) == 0 {
				b.bad(filePython, f.line, "Function without statements", "Write them in lines below def.")
				return
			}
			b.actions = append(b.actions, action{Name: f.name, Steps: r.steps, line: f.line})
		}
	}
	b.bad(filePython, list[len(list)-1].line, "The list of actions is not closed", "It ends with ] on its own.")
}

// value is what a name in a function stands for.
type value struct {
	element *element
	list    bool   // element without an index: all that its selector finds
	chain   *chain // ActionChains
}

// chain are steps that perform does.
type chain struct {
	steps []step
	last  *element // where the mouse is
}

// reading reads the statements of a function. Behind the first error it reads nothing.
type reading struct {
	driver string
	values map[string]value
	tokens []token
	steps  []step
	err    error
}

func (r *reading) fail(format string, args ...any) {
	if r.err == nil {
		r.err, r.tokens = fmt.Errorf(format, args...), nil
	}
}

// statement reads one: name = value, or what is done.
func (r *reading) statement(tokens []token) error {
	r.tokens = tokens
	if len(tokens) == 1 && (r.is(kindName, "pass") || r.is(kindString, "")) {
		return nil
	}
	name := ""
	if len(tokens) > 2 && tokens[0].kind == kindName && tokens[1].text == "=" && tokens[1].kind == kindSign {
		name, r.tokens = tokens[0].text, tokens[2:]
	}
	v, done := r.expression()
	switch {
	case len(r.tokens) > 0:
		r.fail("%q is not expected here", r.tokens[0].text)
	case name != "" && v.chain == nil && (done || v.element == nil):
		r.fail("%s is set to something that is not an element", name)
	case name != "":
		r.values[name] = v
	case !done:
		r.fail("it does nothing that is known")
	}
	return r.err
}

func (r *reading) is(k kind, text string) bool {
	return len(r.tokens) > 0 && r.tokens[0].kind == k && (text == "" || r.tokens[0].text == text)
}

func (r *reading) take() token {
	if len(r.tokens) == 0 {
		return token{kind: kindOther, text: "the end of the line"}
	}
	t := r.tokens[0]
	r.tokens = r.tokens[1:]
	return t
}

// expect reads signs and names.
func (r *reading) expect(texts ...string) {
	for _, want := range texts {
		if t := r.take(); t.text != want || t.kind != kindSign && t.kind != kindName {
			r.fail("want %s instead of %q", want, t.text)
		}
	}
}

// closed reads the end of a call.
func (r *reading) closed() {
	if r.is(kindSign, ",") {
		r.take()
	}
	r.expect(")")
}

// expression reads a value and what is called on it. done means that a step was
// made of it.
func (r *reading) expression() (v value, done bool) {
	switch {
	case r.is(kindName, "time"):
		r.expect("time", ".", "sleep", "(")
		if seconds := r.number(); seconds > 0 {
			r.steps = append(r.steps, step{Do: doWait, Seconds: seconds})
		}
		r.closed()
		return v, true
	case r.is(kindName, "ActionChains"):
		r.expect("ActionChains", "(", r.driver, ")")
		v.chain = &chain{}
	case len(r.tokens) > 2 && r.tokens[0].text == r.driver && r.tokens[2].text == "execute_script":
		r.script()
		return v, true
	default:
		v = r.operand()
	}
	if v.chain != nil {
		return v, r.chained(v.chain)
	}
	return v, r.ofElement(v)
}

func (r *reading) number() float64 {
	sign := 1.0
	if r.is(kindSign, "-") {
		r.take()
		sign = -1
	}
	t := r.take()
	n, err := strconv.ParseFloat(t.text, 64)
	if t.kind != kindNumber || err != nil {
		r.fail("want a number instead of %q", t.text)
	}
	return sign * n
}

// text reads a string; strings that follow each other are one.
func (r *reading) text() string {
	var text strings.Builder
	if !r.is(kindString, "") {
		r.fail("want a plain string instead of %q", r.take().text)
	}
	for r.is(kindString, "") {
		text.WriteString(r.take().text)
	}
	return text.String()
}

var bys = map[string]string{
	"ID": "id", "CLASS_NAME": "class", "CSS_SELECTOR": "css", "XPATH": "xpath", "TAG_NAME": "tag", "NAME": "name", "LINK_TEXT": "link",
}

// operand reads a name, or what the browser finds, and [number] after a list.
func (r *reading) operand() (v value) {
	t := r.take()
	known, ok := r.values[t.text]
	switch {
	case t.kind != kindName:
		r.fail("%q is not expected here", t.text)
	case t.text == r.driver:
		v = r.find()
	case ok:
		v = known
	default:
		r.fail("%q is not known here", t.text)
	}
	if !r.is(kindSign, "[") {
		return v
	}
	if !v.list {
		r.fail("only what find_elements returns has a number")
		return v
	}
	r.take()
	n := r.number()
	r.expect("]")
	if n != float64(int(n)) || n < -1e4 || n > 1e4 {
		r.fail("%g is not a position", n)
	}
	one := *v.element
	one.Index = int(n)
	return value{element: &one}
}

// find reads find_element or find_elements after the browser.
func (r *reading) find() value {
	r.expect(".")
	name := r.take().text
	if name != "find_element" && name != "find_elements" {
		r.fail("%s.%s is not known", r.driver, name)
	}
	r.expect("(", "By", ".")
	how := r.take().text
	by, ok := bys[how]
	if !ok {
		r.fail("the way By.%s is not known", how)
	}
	r.expect(",")
	selector := r.text()
	r.closed()
	return value{element: &element{By: by, Selector: selector}, list: name == "find_elements"}
}

// script reads a call of execute_script.
func (r *reading) script() {
	r.expect(r.driver, ".", "execute_script", "(")
	s := step{Do: doScript, Script: r.text()}
	for r.is(kindSign, ",") {
		r.take()
		if r.is(kindSign, ")") {
			break
		}
		s.On = append(s.On, r.argument())
	}
	r.steps = append(r.steps, s)
	r.expect(")")
}

// argument reads an element.
func (r *reading) argument() element {
	v := r.operand()
	if v.element == nil || v.list {
		r.fail("want an element")
		return element{}
	}
	return *v.element
}

// ofElement reads .click(), .clear() or .send_keys("…") after an element.
func (r *reading) ofElement(v value) (done bool) {
	if !r.is(kindSign, ".") {
		return false
	}
	if v.element == nil || v.list {
		r.fail("a list of elements needs a number in brackets")
		return false
	}
	r.take()
	s := step{Do: r.take().text, element: *v.element}
	switch s.Do {
	case "click", "clear":
		r.expect("(")
	case "send_keys":
		r.expect("(")
		s.Do, s.Text = doType, r.text()
	default:
		r.fail(".%s is not known", s.Do)
	}
	r.closed()
	r.steps = append(r.steps, s)
	return true
}

// chained reads what follows ActionChains. done means that steps were made, or are
// kept for perform.
func (r *reading) chained(c *chain) (done bool) {
	for ; r.is(kindSign, "."); done = true {
		r.take()
		name := r.take().text
		r.expect("(")
		s := step{Do: doClick}
		switch name {
		case "perform":
			r.steps, c.steps = append(r.steps, c.steps...), nil
			r.closed()
			continue
		case "click":
			if c.last != nil && r.is(kindSign, ")") {
				s.element = *c.last
			} else {
				s.element = r.argument()
			}
			c.last = &s.element
		case "move_to_element":
			s.Do, s.element = doHover, r.argument()
			c.last = &s.element
		case "drag_and_drop":
			s.Do, s.element = doDrag, r.argument()
			r.expect(",")
			to := r.argument()
			s.To, c.last = &to, &to
		default:
			r.fail("ActionChains.%s is not known", name)
		}
		r.closed()
		c.steps = append(c.steps, s)
	}
	return done
}
