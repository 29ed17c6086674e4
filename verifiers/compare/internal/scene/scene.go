// Package scene compares scenes of a 3D editor: their objects, and what the view
// shows. It must not know where the scenes come from.
package scene

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/berth-eval/berth/verifiers/compare/internal/diff"
	"github.com/berth-eval/berth/verifiers/compare/internal/document"
)

// viewTolerance is how much fov and orthoZoom may differ.
const viewTolerance = 0.01

// maxObjects is how many objects a scene may have.
const maxObjects = 2000

// Compare returns what differs between a scene and that scene in an export. Position,
// rotation (radians), scale and opacity may differ by tolerance. Fails with
// document.ErrTruth if the truth has no scene.
func Compare(truth, prediction any, tolerance float64) (d diff.List, err error) {
	if list, ok := document.Get(truth, "scenes").(document.List); ok && len(list) == 1 {
		truth = list[0]
	}
	expected, view, ok := parts(truth)
	if !ok || len(expected) > maxObjects {
		return d, document.BadTruth("it has no scene with a list of at most %d objects", maxObjects)
	}
	if len(expected) == 0 && len(view) == 0 {
		d.Add("the ground truth is empty, which nothing equals")
		return d, nil
	}
	found := pick(truth, expected, prediction)
	if found == nil {
		d.Add("the prediction has no scenes: %s", document.Show(prediction))
		return d, nil
	}
	objects, settings, ok := parts(found)
	if !ok {
		d.Add("the scene %s has no list of objects", document.Show(document.Get(found, "name")))
		return d, nil
	}
	if len(objects) != len(expected) {
		d.Add("it has %d objects, expected %d", len(objects), len(expected))
	} else {
		match(&d, expected, objects, tolerance)
	}
	for _, key := range []string{"showGrid", "showAxes", "backgroundColor"} {
		if a, e := settings[key], view[key]; a != nil && e != nil && !exact(a, e) {
			d.Add("%s is %s, expected %s", key, document.Show(a), document.Show(e))
		}
	}
	for _, key := range []string{"fov", "orthoZoom"} {
		if a, e := settings[key], view[key]; a != nil && e != nil && !near(a, e, viewTolerance) {
			d.Add("%s is %s, expected %s ± %g", key, document.Show(a), document.Show(e), viewTolerance)
		}
	}
	return d, nil
}

// parts returns the objects and the settings of a scene.
func parts(v any) (document.List, document.Object, bool) {
	objects, ok := document.Get(v, "scene", "objects").(document.List)
	settings, _ := document.Get(v, "scene", "settings").(document.Object)
	return objects, settings, ok
}

// pick returns the scene of an export with the name of the expected one, or else
// the one in which most names of objects are the same.
func pick(truth any, expected document.List, prediction any) any {
	scenes, ok := document.Get(prediction, "scenes").(document.List)
	if !ok && document.Get(prediction, "scene") != nil {
		scenes = document.List{prediction}
	}
	names := map[string]bool{}
	for _, o := range expected {
		if name, ok := document.Get(o, "name").(string); ok {
			names[name] = true
		}
	}
	name, named := document.Get(truth, "name").(string)
	var found any
	most := -1
	for _, s := range scenes {
		if own, ok := document.Get(s, "name").(string); named && ok && own == name {
			return s
		}
		objects, _, _ := parts(s)
		common := map[string]bool{}
		for _, o := range objects {
			if n, ok := document.Get(o, "name").(string); ok && names[n] {
				common[n] = true
			}
		}
		if len(common) > most {
			found, most = s, len(common)
		}
	}
	return found
}

// match pairs the objects with the fewest errors, and adds the errors.
func match(d *diff.List, expected, objects document.List, tolerance float64) {
	costs := make([][]int, len(expected))
	for t, e := range expected {
		for _, o := range objects {
			costs[t] = append(costs[t], compare(o, e, tolerance, nil))
		}
	}
	for t, p := range diff.Pairs(costs) {
		compare(objects[p], expected[t], tolerance, func(format string, a ...any) {
			d.Add("object %s: %s", document.Show(document.Get(objects[p], "name")), fmt.Sprintf(format, a...))
		})
	}
}

// compare returns how many fields of an object differ. A field that is missing on
// either side does not. add gets the differences, unless it is nil.
func compare(actual, expected any, tolerance float64, add func(format string, a ...any)) (errors int) {
	a, okA := actual.(document.Object)
	e, okE := expected.(document.Object)
	if !okA || !okE {
		if add != nil {
			add("it is not an object")
		}
		return 1
	}
	check := func(key string, same func(a, e any) bool) {
		if a[key] != nil && e[key] != nil && !same(a[key], e[key]) {
			errors++
			if add != nil {
				add("%s is %s, expected %s", key, document.Show(a[key]), document.Show(e[key]))
			}
		}
	}
	within := func(a, e any) bool { return vector(a, e, tolerance, false) }
	check("type", exact)
	check("wireframe", exact)
	check("position", within)
	check("rotation", func(a, r any) bool { return vector(a, r, tolerance, round(e)) })
	check("scale", within)
	check("opacity", func(a, e any) bool { return near(a, e, tolerance) })
	check("color", func(a, e any) bool { return colour(a) == colour(e) })
	return errors
}

// round reports whether an object looks the same after a rotation about Y.
func round(o document.Object) bool {
	for _, key := range []string{"type", "name"} {
		text, _ := o[key].(string)
		text = strings.ToLower(strings.TrimSpace(text))
		for _, shape := range []string{"cone", "sphere", "cylinder"} {
			if text == shape || key == "name" && strings.HasPrefix(text, shape) {
				return true
			}
		}
	}
	return false
}

// exact compares scalars.
func exact(a, e any) bool {
	x, okX := a.(json.Number)
	y, okY := e.(json.Number)
	if okX && okY {
		return document.SameNumber(x, y)
	}
	switch a.(type) {
	case document.Object, document.List:
		return false
	}
	return a == e
}

// near compares numbers.
func near(a, e any, tolerance float64) bool {
	x, okX := document.Number(a)
	y, okY := document.Number(e)
	return okX && okY && document.Within(x, y, tolerance)
}

// vector compares three numbers, as a list or as an object with x, y and z. A
// number alone stands for all three.
func vector(a, e any, tolerance float64, notY bool) bool {
	x, okX := three(a)
	y, okY := three(e)
	if !okX || !okY {
		return false
	}
	for i := range x {
		if i == 1 && notY {
			continue
		}
		if !document.Within(x[i], y[i], tolerance) {
			return false
		}
	}
	return true
}

func three(v any) (out [3]float64, ok bool) {
	var values [3]any
	switch v := v.(type) {
	case document.List:
		if len(v) < 3 { // a rotation may name the order of its axes after them
			return out, false
		}
		copy(values[:], v)
	case document.Object:
		values = [3]any{v["x"], v["y"], v["z"]}
	default:
		values = [3]any{v, v, v}
	}
	for i := range values {
		if out[i], ok = document.Number(values[i]); !ok {
			return out, false
		}
	}
	return out, true
}

// colour returns the digits of a colour in hex, in lower case.
func colour(v any) string {
	text, ok := v.(string)
	if !ok {
		return document.Show(v)
	}
	return strings.TrimPrefix(strings.ToLower(strings.TrimSpace(text)), "#")
}
