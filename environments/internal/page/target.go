package page

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/berth-eval/berth/environments/internal/cdp"
)

// How a Target is found.
const (
	ByCSS   = "css"
	ByID    = "id"
	ByClass = "class"
	ByTag   = "tag"
	ByName  = "name"
	ByXPath = "xpath"
	ByLink  = "link" // a link, by its whole text
)

// Target is an element of the active page: of those that Selector finds, the one
// at Index, which counts from 0, or from the end if it is below 0.
type Target struct {
	By, Selector string
	Index        int
}

// pointing is JavaScript with what actions need. find returns the element, and
// fails with a sentence. point scrolls to it and returns its center in the
// viewport. With strict it fails unless the element can be clicked there.
const pointing = `
const find = (by, selector, index) => {
  let all = [];
  if (by === 'id') all = [...document.querySelectorAll('[id]')].filter(e => e.id === selector);
  else if (by === 'class') all = [...document.getElementsByClassName(selector)];
  else if (by === 'tag') all = [...document.getElementsByTagName(selector)];
  else if (by === 'name') all = [...document.querySelectorAll('[name]')].filter(e => e.getAttribute('name') === selector);
  else if (by === 'link') all = [...document.querySelectorAll('a')].filter(e => e.innerText.trim() === selector);
  else if (by === 'xpath') {
    const found = document.evaluate(selector, document, null, XPathResult.ORDERED_NODE_SNAPSHOT_TYPE, null);
    for (let i = 0; i < found.snapshotLength; i++) if (found.snapshotItem(i).nodeType === 1) all.push(found.snapshotItem(i));
  } else all = [...document.querySelectorAll(selector)];
  const e = all[index < 0 ? all.length + index : index];
  if (!e) throw all.length ? 'only ' + all.length + ' elements match' : 'no element matches';
  return e;
};
const box = e => {
  const w = innerWidth, h = innerHeight;
  for (const r of [...e.getClientRects(), e.getBoundingClientRect()]) {
    const left = Math.max(r.left, 0), right = Math.min(r.right, w), top = Math.max(r.top, 0), bottom = Math.min(r.bottom, h);
    if (right > left && bottom > top) return {x: (left + right) / 2, y: (top + bottom) / 2};
  }
  return null;
};
const point = (e, strict) => {
  if (!box(e)) e.scrollIntoView({block: 'center', inline: 'nearest', behavior: 'instant'});
  const at = box(e);
  if (!at) throw e.getClientRects().length ? 'it is not in the viewport' : 'it is not displayed';
  if (!strict) return at;
  if (!e.checkVisibility({visibilityProperty: true})) throw 'it is not displayed';
  const hit = e.getRootNode().elementFromPoint(at.x, at.y);
  for (let n = hit; n; n = n.parentNode || n.host) if (n === e) return at;
  if (hit && e.labels && [...e.labels].some(l => l.contains(hit))) return at;
  throw 'it is covered by ' + (hit ? hit.tagName.toLowerCase() + (hit.id ? '#' + hit.id.slice(0, 100) : '') : 'nothing');
};
const changed = e => {
  e.dispatchEvent(new Event('input', {bubbles: true, composed: true}));
  e.dispatchEvent(new Event('change', {bubbles: true}));
};
`

// arguments returns what find is called with.
func (f Target) arguments() string {
	text, _ := json.Marshal([]any{f.By, f.Selector, f.Index}) // nothing in it can fail
	return strings.Trim(string(text), "[]")
}

func (f Target) String() string {
	if f.Index == 0 {
		return fmt.Sprintf("%s %q", f.By, cut(f.Selector))
	}
	return fmt.Sprintf("%s %q, number %d", f.By, cut(f.Selector), f.Index)
}

// Inside evaluates a script in its own world: it shares the document with the
// page, and nothing that the page's scripts define. The world lives as long as the
// document. limit is its longest time. The value is decoded into out unless that is
// nil.
func (b *Browser) Inside(ctx context.Context, script string, limit time.Duration, out any) error {
	b.acts.Lock()
	defer b.acts.Unlock()
	t, err := b.current(ctx)
	if err != nil {
		return err
	}
	return b.isolated(ctx, t, script, limit, out)
}

// isolated runs a script in its own world. If the page was left before the script
// began, it runs in the next one.
func (b *Browser) isolated(ctx context.Context, t *tab, script string, limit time.Duration, out any) error {
	limited, cancel := context.WithTimeoutCause(ctx, limit+b.set.Answer, fmt.Errorf("%w does not respond", ErrPage))
	defer cancel()
	for {
		err := b.inWorld(limited, t, script, limit, out)
		if e, ok := errors.AsType[*cdp.Error](err); !ok || e.Message != "Cannot find context with specified id" {
			return err
		}
	}
}

func (b *Browser) inWorld(ctx context.Context, t *tab, script string, limit time.Duration, out any) error {
	var world struct {
		ID int64 `json:"executionContextId"`
	}
	if err := b.do(ctx, t, "Page.createIsolatedWorld", object{"frameId": t.target, "worldName": "berth"}, &world); err != nil {
		return err
	}
	r, err := b.run(ctx, t, b.unlimited, "Runtime.evaluate", object{
		"expression": script, "contextId": world.ID, "returnByValue": true, "awaitPromise": true, "timeout": limit.Milliseconds(),
	})
	if err != nil || out == nil || len(r.Value) == 0 {
		return err
	}
	return json.Unmarshal(r.Value, out)
}

// on runs a script of the form "(e) => …" with an element.
func (b *Browser) on(ctx context.Context, t *tab, f Target, script string, out any) error {
	var got struct {
		Failed string          `json:"failed"`
		Value  json.RawMessage `json:"value"`
	}
	script = "(() => { " + pointing + " try { return {value: (" + script + ")(find(" + f.arguments() + "))}; } catch (x) { return {failed: String(x && x.message || x)}; } })()"
	if err := b.isolated(ctx, t, script, b.set.Answer, &got); err != nil {
		return err
	}
	if got.Failed != "" {
		return refuse("ElementError", "%s: %s", f, cut(got.Failed))
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(got.Value, out)
}

// at waits until an element can be pointed at, and returns where.
func (b *Browser) at(ctx context.Context, t *tab, f Target, strict bool) (m mouse, err error) {
	var p struct{ X, Y float64 }
	for end := time.Now().Add(b.set.ActionTimeout); ; {
		if err = b.on(ctx, t, f, fmt.Sprintf("e => point(e, %t)", strict), &p); err == nil || time.Now().After(end) {
			return mouse{x: p.X, y: p.Y}, err
		}
		if failed := sleep(ctx, 50*time.Millisecond); failed != nil {
			return m, failed
		}
	}
}

// doing runs an action on the active page.
func (b *Browser) doing(ctx context.Context, f func(*tab) error) error {
	b.acts.Lock()
	defer b.acts.Unlock()
	t, err := b.current(ctx)
	if err != nil {
		return err
	}
	return f(t)
}

// ClickOn clicks on an element, or chooses an option of a list.
func (b *Browser) ClickOn(ctx context.Context, f Target) error {
	return b.doing(ctx, func(t *tab) error {
		var chosen bool
		err := b.on(ctx, t, f, `e => {
  if (e.tagName !== 'OPTION') return false;
  const list = e.closest('select');
  if (!list || list.disabled || e.disabled) throw 'it is an option that cannot be chosen';
  list.focus();
  e.selected = !list.multiple || !e.selected;
  changed(list);
  return true;
}`, &chosen)
		if err == nil && chosen {
			return b.loaded(ctx)
		}
		at, err := b.at(ctx, t, f, true)
		if err != nil {
			return err
		}
		return b.click(ctx, t, at, 1)
	})
}

// HoverOver moves the mouse to the center of an element.
func (b *Browser) HoverOver(ctx context.Context, f Target) error {
	return b.doing(ctx, func(t *tab) error {
		at, err := b.at(ctx, t, f, false)
		if err != nil {
			return err
		}
		return b.mouse(ctx, t, "mouseMoved", at)
	})
}

// Drag drags an element onto another one.
func (b *Browser) Drag(ctx context.Context, from, to Target) error {
	return b.doing(ctx, func(t *tab) error {
		a, err := b.at(ctx, t, from, false)
		if err != nil {
			return err
		}
		z, err := b.at(ctx, t, to, false)
		if err != nil {
			return err
		}
		return b.dragTo(ctx, t, a, z)
	})
}

// TypeInto types a text at the end of what a field has, key by key. Fields that
// are not typed into, such as those for a color, get it as their value.
func (b *Browser) TypeInto(ctx context.Context, f Target, text string) error {
	return b.doing(ctx, func(t *tab) error {
		value, _ := json.Marshal(text) // a string never fails
		var done bool
		err := b.on(ctx, t, f, `e => {
  if (e.disabled || e.readOnly) throw 'it cannot be changed';
  if (!e.checkVisibility({visibilityProperty: true})) throw 'it is not displayed';
  e.scrollIntoView({block: 'nearest', inline: 'nearest', behavior: 'instant'});
  e.focus();
  const value = `+string(value)+`;
  if (e.tagName === 'INPUT' && ['color', 'range', 'date', 'time', 'month', 'week', 'datetime-local'].includes(e.type)) {
    e.value = value;
    changed(e);
    return true;
  }
  if (e.tagName === 'INPUT' || e.tagName === 'TEXTAREA') {
    try { e.setSelectionRange(e.value.length, e.value.length); } catch {}
  } else if (!e.isContentEditable && document.activeElement !== e) throw 'it cannot have the focus';
  return false;
}`, &done)
		if err != nil || done {
			return err
		}
		return typeText(ctx, b, t, &arguments{Text: text})
	})
}

// Clear empties a field.
func (b *Browser) Clear(ctx context.Context, f Target) error {
	return b.doing(ctx, func(t *tab) error {
		return b.on(ctx, t, f, `e => {
  if (e.disabled || e.readOnly) throw 'it cannot be changed';
  if (e.tagName === 'INPUT' || e.tagName === 'TEXTAREA') e.value = '';
  else if (e.isContentEditable) e.textContent = '';
  else throw 'it is not a field';
  changed(e);
}`, nil)
	})
}

// ScrollBy scrolls what an element contains by pixels.
func (b *Browser) ScrollBy(ctx context.Context, f Target, x, y float64) error {
	return b.doing(ctx, func(t *tab) error {
		return b.on(ctx, t, f, fmt.Sprintf("e => e.scrollBy({left: %g, top: %g, behavior: 'instant'})", x, y), nil)
	})
}

// ScrollTo scrolls until an element is in the middle of the viewport.
func (b *Browser) ScrollTo(ctx context.Context, f Target) error {
	return b.doing(ctx, func(t *tab) error {
		return b.on(ctx, t, f, "e => e.scrollIntoView({block: 'center', inline: 'nearest', behavior: 'instant'})", nil)
	})
}

// Run runs a script as part of the page, as the body of a function with elements as
// its arguments.
func (b *Browser) Run(ctx context.Context, script string, on ...Target) error {
	return b.doing(ctx, func(t *tab) error {
		list := make([]string, len(on))
		for i, f := range on {
			list[i] = "find(" + f.arguments() + ")"
		}
		_, err := b.run(ctx, t, b.do, "Runtime.evaluate", object{
			"expression": "(() => { " + pointing + " const list = [" + strings.Join(list, ", ") + "]; (function () {\n" + script + "\n}).apply(null, list); })()",
			"timeout":    b.set.Answer.Milliseconds(), "userGesture": true,
		})
		if thrown, ok := errors.AsType[*exception](err); ok {
			err = refuse("ScriptError", "%s", thrown)
		}
		return err
	})
}

// Complete waits until the active page and its pictures are loaded, or for the time
// of the settings.
func (b *Browser) Complete(ctx context.Context) error {
	for end := time.Now().Add(b.set.Load); ; {
		var done bool
		if err := b.Inside(ctx, "document.readyState === 'complete'", b.set.Answer, &done); err != nil || done || time.Now().After(end) {
			return err
		}
		if err := sleep(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// Picture returns what the viewport shows: a PNG, or with quality from 1 to 100 a
// JPEG.
func (b *Browser) Picture(ctx context.Context, quality int) (picture []byte, err error) {
	err = b.doing(ctx, func(t *tab) error {
		if quality == 0 {
			picture, err = b.screenshot(ctx, t)
			return err
		}
		var got struct {
			Data string `json:"data"`
		}
		if err = b.do(ctx, t, "Page.captureScreenshot", object{"format": "jpeg", "quality": quality}, &got); err != nil {
			return err
		}
		picture, err = base64.StdEncoding.DecodeString(got.Data)
		return err
	})
	return picture, err
}

// Failure returns an error of an action as agents see it.
func Failure(err error) string { return failure(err) }
