package page

import (
	"context"
	"slices"
	"strings"
	"unicode/utf8"
)

// The bits of modifiers in the protocol.
var modifierBits = map[string]int{"Alt": 1, "Control": 2, "ControlOrMeta": 2, "Meta": 4, "Shift": 8}

// key is a key of a US keyboard.
type key struct {
	name    string // KeyboardEvent.key
	code    string // KeyboardEvent.code
	windows int    // KeyboardEvent.keyCode
	text    string // what it writes; empty: nothing
}

// named are the keys that have names.
var named = func() map[string]key {
	all := map[string]key{
		"Enter": {"Enter", "Enter", 13, "\r"}, "Tab": {"Tab", "Tab", 9, ""}, "Backspace": {"Backspace", "Backspace", 8, ""},
		"Delete": {"Delete", "Delete", 46, ""}, "Escape": {"Escape", "Escape", 27, ""}, "Space": {" ", "Space", 32, " "}, " ": {" ", "Space", 32, " "},
		"ArrowLeft": {"ArrowLeft", "ArrowLeft", 37, ""}, "ArrowUp": {"ArrowUp", "ArrowUp", 38, ""},
		"ArrowRight": {"ArrowRight", "ArrowRight", 39, ""}, "ArrowDown": {"ArrowDown", "ArrowDown", 40, ""},
		"Home": {"Home", "Home", 36, ""}, "End": {"End", "End", 35, ""}, "PageUp": {"PageUp", "PageUp", 33, ""}, "PageDown": {"PageDown", "PageDown", 34, ""},
		"Insert": {"Insert", "Insert", 45, ""}, "CapsLock": {"CapsLock", "CapsLock", 20, ""}, "ContextMenu": {"ContextMenu", "ContextMenu", 93, ""},
		"Shift": {"Shift", "ShiftLeft", 16, ""}, "Control": {"Control", "ControlLeft", 17, ""}, "ControlOrMeta": {"Control", "ControlLeft", 17, ""},
		"Alt": {"Alt", "AltLeft", 18, ""}, "Meta": {"Meta", "MetaLeft", 91, ""},
	}
	for i := range 12 {
		name := "F" + string("123456789"[i%9])
		if i >= 9 {
			name = "F1" + string("012"[i-9])
		}
		all[name] = key{name, name, 112 + i, ""}
	}
	return all
}()

// signs are the keys that write signs, without and with Shift.
var signs = []struct {
	code        string
	windows     int
	plain, with string
}{
	{"Backquote", 192, "`", "~"},
	{"Minus", 189, "-", "_"},
	{"Equal", 187, "=", "+"},
	{"BracketLeft", 219, "[", "{"},
	{"BracketRight", 221, "]", "}"},
	{"Backslash", 220, `\`, "|"},
	{"Semicolon", 186, ";", ":"},
	{"Quote", 222, "'", `"`},
	{"Comma", 188, ",", "<"},
	{"Period", 190, ".", ">"},
	{"Slash", 191, "/", "?"},
	{"Digit1", 49, "1", "!"},
	{"Digit2", 50, "2", "@"},
	{"Digit3", 51, "3", "#"},
	{"Digit4", 52, "4", "$"},
	{"Digit5", 53, "5", "%"},
	{"Digit6", 54, "6", "^"},
	{"Digit7", 55, "7", "&"},
	{"Digit8", 56, "8", "*"},
	{"Digit9", 57, "9", "("},
	{"Digit0", 48, "0", ")"},
}

// keyOf returns the key that a name or a sign stands for. A sign of no key of a US
// keyboard is a key without a code.
func keyOf(name string) (key, bool) {
	if k, ok := named[name]; ok {
		return k, true
	}
	if utf8.RuneCountInString(name) != 1 {
		return key{}, false
	}
	if c := name[0]; len(name) == 1 && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z') {
		upper := strings.ToUpper(name)
		return key{name, "Key" + upper, int(upper[0]), name}, true
	}
	for _, s := range signs {
		if name == s.plain || name == s.with {
			return key{name, s.code, s.windows, name}, true
		}
	}
	return key{name: name, text: name}, true
}

// send presses or releases a key while others are held.
func (b *Browser) send(ctx context.Context, t *tab, k key, down bool, held int) error {
	held |= b.holding()
	p := object{"key": k.name, "code": k.code, "windowsVirtualKeyCode": k.windows, "modifiers": held, "type": "keyUp"}
	if down {
		p["type"] = "rawKeyDown"
		if k.text != "" && held&^modifierBits["Shift"] == 0 {
			p["type"], p["text"] = "keyDown", k.text
		}
		if commands := editing[editKey{strings.ToLower(k.name), held}]; commands != "" {
			p["commands"] = []string{commands}
		}
	}
	return b.do(ctx, t, "Input.dispatchKeyEvent", p, nil)
}

type editKey struct {
	name string
	held int
}

// editing are shortcuts that a desktop gives a browser.
var editing = map[editKey]string{{"a", 2}: "selectAll", {"c", 2}: "copy", {"x", 2}: "cut", {"v", 2}: "paste", {"z", 2}: "undo", {"y", 2}: "redo"}

// press presses keys that are joined by +, and releases them.
func (b *Browser) press(ctx context.Context, t *tab, keys string) error {
	names := strings.Split(keys, "+")
	if strings.HasSuffix(keys, "+") { // the last key is the plus sign
		names = append(names[:max(0, len(names)-2)], "+")
	}
	held := 0
	var down []key
	for i, name := range names {
		k, ok := keyOf(name)
		if !ok {
			return refuse("ValueError", "%q is not a key: use a sign, or a name such as Enter, ArrowLeft or Control", cut(name))
		}
		bit := modifierBits[name]
		if bit == 0 && i < len(names)-1 {
			return refuse("ValueError", "%q is not a modifier: use Alt, Control, Meta or Shift before the last key", cut(name))
		}
		if held |= bit; held&modifierBits["Shift"] != 0 && len(k.name) == 1 {
			k = shifted(k)
		}
		down = append(down, k)
		if err := b.send(ctx, t, k, true, held); err != nil {
			return err
		}
	}
	for _, k := range slices.Backward(down) {
		held &^= modifierBits[k.name]
		if err := b.send(ctx, t, k, false, held); err != nil {
			return err
		}
	}
	return b.loaded(ctx)
}

// holding returns the modifiers that keyboard_down holds.
func (b *Browser) holding() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.held
}

// shifted returns what a key writes with Shift.
func shifted(k key) key {
	k.name, k.text = strings.ToUpper(k.name), strings.ToUpper(k.text)
	for _, s := range signs {
		if s.plain == k.name {
			k.name, k.text = s.with, s.with
		}
	}
	return k
}

// hold presses or releases one key.
func (b *Browser) hold(ctx context.Context, t *tab, name string, down bool) error {
	k, ok := keyOf(name)
	if !ok {
		return refuse("ValueError", "%q is not a key: use a sign, or a name such as Enter, ArrowLeft or Control", cut(name))
	}
	b.mu.Lock()
	if down {
		b.held |= modifierBits[name]
	} else {
		b.held &^= modifierBits[name]
	}
	b.mu.Unlock()
	return b.send(ctx, t, k, down, 0)
}

// maxTyped bounds a text that is typed key by key, in characters.
const maxTyped = 10_000

func typeText(ctx context.Context, b *Browser, t *tab, in *arguments) error {
	if n := utf8.RuneCountInString(in.Text); n > maxTyped {
		return refuse("ValueError", "the text has %d characters, and %d can be typed: use keyboard_insert_text", n, maxTyped)
	}
	for _, r := range strings.ReplaceAll(in.Text, "\r\n", "\n") {
		k, _ := keyOf(string(r))
		switch r {
		case '\n':
			k = named["Enter"]
		case '\t':
			k = named["Tab"]
		}
		if k.code == "" { // no key writes it
			if err := b.do(ctx, t, "Input.insertText", object{"text": string(r)}, nil); err != nil {
				return err
			}
			continue
		}
		if err := b.send(ctx, t, k, true, 0); err != nil {
			return err
		}
		if err := b.send(ctx, t, k, false, 0); err != nil {
			return err
		}
	}
	return nil
}
