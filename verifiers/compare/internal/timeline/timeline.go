// Package timeline compares exports of a video editor: the clips, sounds and texts
// on its tracks, and a few effects. It must not know where the exports come from.
package timeline

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/berth-eval/berth/verifiers/compare/internal/diff"
	"github.com/berth-eval/berth/verifiers/compare/internal/document"
)

// overlapMs is how much of a text a video may cover without the track of the text
// being compared, in milliseconds.
const overlapMs = 500

// maxBlocks is how many elements a timeline may have.
const maxBlocks = 2000

// block is one element of a timeline.
type block struct {
	document.Object

	id          string
	track       int
	kind, name  string
	start, time float64 // time: how long it takes
}

// end is when a block ends.
func (b *block) end() float64 { return b.start + b.time }

// String names a block for a difference.
func (b *block) String() string {
	return fmt.Sprintf("%s %s at %g ms", b.kind, document.Show(b.name), b.start)
}

// times are the fields that are compared with the tolerance.
var times = []string{"startTimeMs", "durationMs", "trimFromStartMs", "trimFromEndMs"}

// Compare returns what differs between the last exports of two documents. Times may
// differ by timeMs. Fails with document.ErrTruth if the truth has no usable export.
func Compare(truth, prediction any, timeMs float64) (d diff.List, err error) {
	want, scenario := content(truth)
	expected, ok := export(want)
	if !ok {
		return d, document.BadTruth("it has no operation EXPORT_COMPLETE with data")
	}
	blocks, faults := read(expected)
	if !faults.Empty() {
		return d, document.BadTruth("%s", faults.First())
	}
	if len(blocks) == 0 {
		d.Add("the ground truth has no elements, which nothing equals")
		return d, nil
	}
	got, _ := content(prediction)
	actual, ok := export(got)
	if !ok {
		d.Add("the prediction has no operation EXPORT_COMPLETE with data")
		return d, nil
	}
	predicted, faults := read(actual)
	d.Append(faults)
	if !faults.Empty() {
		return d, nil
	}
	items := effects(actual)
	shift(predicted, items)
	if len(blocks) != len(predicted) {
		d.Add("it has %d elements, expected %d", len(predicted), len(blocks))
	} else {
		match(&d, blocks, predicted, timeMs)
	}
	checkEffects(&d, scenario, predicted, items, timeMs)
	return d, nil
}

// content returns the document that has the operations, and the scenario of a
// truth that names one; 0: none.
func content(v any) (any, int) {
	o, ok := v.(document.Object)
	if !ok {
		return v, 0
	}
	scenario, _ := document.Number(o["scenario"])
	if inner, wrapped := o["endpoint_content"]; wrapped {
		if text, isText := inner.(string); isText {
			inner, _ = document.FromFile(text)
		}
		return inner, int(scenario)
	}
	return v, int(scenario)
}

// export returns the data of the last operation EXPORT_COMPLETE.
func export(v any) (document.Object, bool) {
	operations, ok := v.(document.List)
	if !ok {
		operations, _ = document.Get(v, "operations").(document.List)
	}
	for _, op := range slices.Backward(operations) {
		if document.Get(op, "type") == "EXPORT_COMPLETE" {
			data, ok := document.Get(op, "data").(document.Object)
			return data, ok
		}
	}
	return nil, false
}

// read returns the elements of an export, in the order in which they are paired.
func read(export document.Object) (blocks []block, faults diff.List) {
	tracks, _ := export["timeline"].(document.List)
	for at, t := range tracks {
		index := at
		if n, ok := document.Number(document.Get(t, "trackIndex")); ok && n == float64(int(n)) {
			index = int(n)
		}
		elements, _ := document.Get(t, "elements").(document.List)
		for i, e := range elements {
			o, ok := e.(document.Object)
			if !ok {
				faults.Add("element %d of track %d is not an object", i, index)
				continue
			}
			if len(blocks) == maxBlocks {
				faults.Add("there are more than %d elements", maxBlocks)
				return blocks, faults
			}
			blocks = append(blocks, newBlock(o, index, i, &faults))
		}
	}
	slices.SortStableFunc(blocks, func(a, b block) int {
		return cmp.Or(
			cmp.Compare(a.kind, b.kind), cmp.Compare(a.name, b.name), cmp.Compare(a.start, b.start), cmp.Compare(a.time, b.time),
			cmp.Compare(a.number("trimFromStartMs"), b.number("trimFromStartMs")),
			cmp.Compare(a.number("trimFromEndMs"), b.number("trimFromEndMs")),
			cmp.Compare(a.track, b.track), cmp.Compare(a.id, b.id),
		)
	})
	return blocks, faults
}

// newBlock reads an element. Name, type, start and duration are required.
func newBlock(o document.Object, track, at int, faults *diff.List) block {
	b := block{Object: o, track: track, id: fmt.Sprintf("t%d-e%d", track, at)}
	if id, ok := document.Text(o["elementId"]); ok && o["elementId"] != nil {
		b.id = id
	}
	kind, okKind := o["mediaType"].(string)
	name, okName := o["mediaName"].(string)
	start, okStart := document.Number(o["startTimeMs"])
	long, okLong := document.Number(o["durationMs"])
	for _, f := range []struct {
		name string
		ok   bool
	}{{"mediaType", okKind}, {"mediaName", okName}, {"startTimeMs", okStart}, {"durationMs", okLong}} {
		if !f.ok {
			faults.Add("element %s has no valid %s: %s", document.Show(b.id), f.name, document.Show(o[f.name]))
		}
	}
	b.kind, b.name, b.start, b.time = strings.ToUpper(kind), name, start, long
	return b
}

// number returns a number of an element; 0 if there is none.
func (b *block) number(field string) float64 {
	f, _ := document.Number(b.Object[field])
	return f
}

// shift moves a prediction so that its first element begins at 0.
func shift(blocks []block, items []effect) {
	if len(blocks) == 0 {
		return
	}
	first := blocks[0].start
	for i := range blocks {
		first = min(first, blocks[i].start)
	}
	for i := range blocks {
		blocks[i].start -= first
	}
	for i := range items {
		items[i].start -= first
		items[i].end -= first
	}
}

// match pairs each expected element with the first predicted one that fits.
func match(d *diff.List, expected, predicted []block, timeMs float64) {
	used := make([]bool, len(predicted))
	for i := range expected {
		e, found, why := &expected[i], false, ""
		onTrack := e.kind != "VIDEO" && e.kind != "AUDIO" && (e.kind != "TEXT" || covered(e, expected))
		for j := range predicted {
			if used[j] || e.kind != predicted[j].kind || e.name != predicted[j].name {
				continue
			}
			differs := mismatch(e, &predicted[j], onTrack, timeMs)
			if differs == "" {
				used[j], found = true, true
				break
			}
			if why == "" {
				why = differs
			}
		}
		if !found && why != "" {
			d.Add("%s is not there: %s", e, why)
		} else if !found {
			d.Add("%s is not there", e)
		}
	}
}

// covered reports whether a video lies over more than overlapMs of b.
func covered(b *block, all []block) bool {
	return slices.ContainsFunc(all, func(o block) bool {
		return o.kind == "VIDEO" && min(b.end(), o.end())-max(b.start, o.start) > overlapMs
	})
}

// mismatch returns the first difference between two elements of the same type and
// name; empty: none.
func mismatch(e, p *block, onTrack bool, tolerance float64) string {
	if onTrack && e.track != p.track {
		return fmt.Sprintf("it is on track %d, expected %d", p.track, e.track)
	}
	for _, field := range times {
		hasE, hasP := e.Object[field] != nil, p.Object[field] != nil
		if hasE != hasP {
			return fmt.Sprintf("%s is %s, expected %s", field, document.Show(p.Object[field]), document.Show(e.Object[field]))
		}
		x, okX := document.Number(e.Object[field])
		y, okY := document.Number(p.Object[field])
		if field == "startTimeMs" {
			y = p.start // shifted
		}
		if hasE && !(okX && okY && document.Within(x, y, tolerance)) {
			return fmt.Sprintf("%s is %s, expected %s", field, document.Show(p.Object[field]), document.Show(e.Object[field]))
		}
	}
	return style(e, p)
}

// style compares the text of an element and its colours.
func style(e, p *block) string {
	if want := e.Object["text"]; want != nil {
		a, okA := want.(string)
		b, okB := p.Object["text"].(string)
		if !okA || !okB || strings.TrimSpace(a) != strings.TrimSpace(b) {
			return fmt.Sprintf("the text is %s, expected %s", document.Show(p.Object["text"]), document.Show(want))
		}
	}
	for _, field := range []string{"fontColor", "backgroundColor"} {
		if want := e.Object[field]; want != nil && colour(want) != colour(p.Object[field]) {
			return fmt.Sprintf("%s is %s, expected %s", field, colour(p.Object[field]), colour(want))
		}
	}
	return ""
}
