package page

import (
	"errors"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

const targets = `<!doctype html><title>Targets</title><body style="margin:0">
<button id=one class=b onclick="log('one')">One</button><button class=b onclick="alert(1); log('two')">Two</button>
<input name=who><input type=color id=colour value="#000000"><input type=date><select id=list><option>A</option><option>B</option></select>
<a href="#here">A link</a><div id=over onmouseenter="log('over')" style="width:50px;height:50px">o</div>
<div id=drag draggable=true ondragstart="log('drag')">drag</div><div id=drop ondragover="event.preventDefault()" ondrop="log('drop')" style="height:30px">drop</div>
<button id=hidden style="display:none">Hidden</button>
<div style="position:relative"><button id=under>Under</button><div style="position:absolute;inset:0">cover</div></div>
<button onclick="window.open('about:blank'); log('opened')" id=opens>Opens</button>
<div style="height:3000px"></div><button id=deep onclick="log('deep')">Deep</button>
<script>
window.all = [];
function log(s) { all.push(s); document.body.dataset.log = all.join(' '); }
document.querySelector = () => { throw 'the page is hostile'; };
Array.prototype.filter = () => [];
</script>`

// Actions by selector do what a person does: they click, hover, drag and type, say
// why they cannot, and do not depend on what the page redefines.
func TestActionsBySelector(t *testing.T) {
	t.Parallel()
	s := settings(fstest.MapFS{"index.html": {Data: []byte(targets)}})
	s.ActionTimeout, s.AcceptDialogs, s.OnePage = 100*time.Millisecond, true, true
	b := start(t, s, Origin+"/index.html")
	must(t, b.Complete(within(t)))
	log := func() (text string) {
		must(t, b.Inside(within(t), "document.body.dataset.log", time.Second, &text))
		return text
	}
	css := func(s string) Target { return Target{By: ByCSS, Selector: s} }
	for _, step := range []struct {
		name string
		do   error
		log  string
	}{
		{"by id", b.ClickOn(within(t), Target{By: ByID, Selector: "one"}), "one"},
		{"by class from the end, with an alert", b.ClickOn(within(t), Target{By: ByClass, Selector: "b", Index: -1}), "one two"},
		{"hover", b.HoverOver(within(t), css("#over")), "one two over"},
		{"drag", b.Drag(within(t), css("#drag"), css("#drop")), "one two over drag drop"},
		{"below the viewport", b.ClickOn(within(t), Target{By: ByXPath, Selector: "//button[text()='Deep']"}), "one two over drag drop deep"},
		{"a script of the page with an element", b.Run(within(t), "log(arguments[0].id)", css("#deep")), "one two over drag drop deep deep"},
		{"by the text of a link", b.ClickOn(within(t), Target{By: ByLink, Selector: "A link"}), ""},
		{"a page that is opened is closed", b.ClickOn(within(t), css("#opens")), "one two over drag drop deep deep opened"},
	} {
		if step.do != nil {
			t.Errorf("%s: %v", step.name, step.do)
		}
	}
	if got := log(); got != "one two over drag drop deep deep opened" {
		t.Errorf("the page has %q", got)
	}
	must(t, b.TypeInto(within(t), Target{By: ByName, Selector: "who"}, "Ann\tx"))
	must(t, b.TypeInto(within(t), css("#colour"), "#ff0000"))
	must(t, b.TypeInto(within(t), css("input[type=date]"), "2026-01-31"))
	must(t, b.ClickOn(within(t), Target{By: ByTag, Selector: "option", Index: 1}))
	var values string
	must(t, b.Inside(within(t), "[...document.querySelectorAll('input, select')].map(e => e.value).join()", time.Second, &values))
	if values != "Ann,#ff0000,2026-01-31,B" {
		t.Errorf("the fields have %q", values)
	}
	must(t, b.Clear(within(t), Target{By: ByName, Selector: "who"}))
	for _, refused := range []struct {
		err  error
		says string
	}{
		{b.ClickOn(within(t), css("#none")), "no element matches"},
		{b.ClickOn(within(t), css("#one[")), "ElementError"},
		{b.ClickOn(within(t), Target{By: ByClass, Selector: "b", Index: 2}), "only 2 elements match"},
		{b.ClickOn(within(t), css("#hidden")), "not displayed"},
		{b.ClickOn(within(t), css("#under")), "covered by div"},
		{b.TypeInto(within(t), css("#over"), "x"), "cannot have the focus"},
		{b.Run(within(t), "throw new Error('mine')"), "mine"},
	} {
		if refusal, ok := errors.AsType[*Refusal](refused.err); !ok || !strings.Contains(refusal.Error(), refused.says) {
			t.Errorf("%v: it should say %q", refused.err, refused.says)
		}
	}
}
