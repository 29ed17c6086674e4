package scene

import (
	"fmt"
	"strings"
	"testing"

	"github.com/berth-eval/berth/verifiers/compare/internal/document"
)

const usual = 0.15

func stage(name, settings string, objects ...string) string {
	return fmt.Sprintf(`{"name": %q, "scene": {"objects": [%s], "settings": {%s}}}`, name, strings.Join(objects, ","), settings)
}

func scenes(all ...string) string { return `{"scenes": [` + strings.Join(all, ",") + `]}` }

func differences(t *testing.T, truth, prediction string, tolerance float64) string {
	t.Helper()
	e, err := document.Parse(truth)
	if err != nil {
		t.Fatalf("%v: %s", err, truth)
	}
	p, err := document.Parse(prediction)
	if err != nil {
		t.Fatalf("%v: %s", err, prediction)
	}
	d, err := Compare(e, p, tolerance)
	if err != nil {
		t.Fatalf("%v: %s", err, truth)
	}
	if d.Empty() {
		return ""
	}
	return d.String()
}

type pair struct {
	name, truth, prediction string
	want                    string // part of the differences; empty: none
}

func check(t *testing.T, tolerance float64, cases []pair) {
	t.Helper()
	for _, tt := range cases {
		got := differences(t, tt.truth, tt.prediction, tolerance)
		if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// objects compares one object with another.
func objects(name, expected, predicted, want string) pair {
	return pair{name, stage("s", "", "{"+expected+"}"), scenes(stage("s", "", "{"+predicted+"}")), want}
}

func TestObjects(t *testing.T) {
	t.Parallel()
	check(t, usual, []pair{
		objects("the same", `"type": "box", "position": [1, 2, 3]`, `"type": "box", "position": [1, 2, 3]`, ""),
		objects("another type", `"type": "box"`, `"type": "cone"`, "type is"),
		objects("another case of the type", `"type": "box"`, `"type": "Box"`, "type is"),
		objects("wireframe", `"wireframe": true`, `"wireframe": false`, "wireframe is"),
		objects("the same wireframe", `"wireframe": true`, `"wireframe": true`, ""),
		objects("1 is not true", `"wireframe": true`, `"wireframe": 1`, "wireframe is"),
		objects("a position at the tolerance", `"position": [1, 2, 3]`, `"position": [1.15, 1.85, 3.15]`, ""),
		objects("a position above it", `"position": [1, 2, 3]`, `"position": [1, 2, 3.151]`, "position is"),
		objects("a position below it", `"position": [1, 2, 3]`, `"position": [0.849, 2, 3]`, "position is"),
		objects("a position as an object", `"position": [1, 2, 3]`, `"position": {"x": 1, "y": 2, "z": 3.1}`, ""),
		objects("a position in two numbers", `"position": [1, 2, 3]`, `"position": [1, 2]`, "position is"),
		objects("a position that is not finite", `"position": [1, 2, 3]`, `"position": [1, 2, 1e999]`, "position is"),
		objects("a position that is text", `"position": [1, 2, 3]`, `"position": ["1", 2, 3]`, "position is"),
		objects("a rotation at the tolerance", `"rotation": [0, 1, 0]`, `"rotation": [0.15, 1.15, -0.15]`, ""),
		objects("a rotation above it", `"rotation": [0, 1, 0]`, `"rotation": [0, 1.16, 0]`, "rotation is"),
		objects("a scale at the tolerance", `"scale": [1, 1, 1]`, `"scale": [0.85, 1.15, 1]`, ""),
		objects("a scale above it", `"scale": [1, 1, 1]`, `"scale": [1.2, 1, 1]`, "scale is"),
		objects("an opacity at the tolerance", `"opacity": 0.5`, `"opacity": 0.65`, ""),
		objects("an opacity above it", `"opacity": 0.5`, `"opacity": 0.66`, "opacity is"),
		objects("an opacity below it", `"opacity": 0.5`, `"opacity": 0.34`, "opacity is"),
		objects("a colour in another case without #", `"color": "#FFaa00"`, `"color": "ffAA00"`, ""),
		objects("another colour", `"color": "#ffaa00"`, `"color": "#ffaa01"`, "color is"),
		objects("visible, locked and name do not count", `"type": "box", "visible": true, "locked": true, "name": "a"`, `"type": "box", "visible": false, "locked": false, "name": "b"`, ""),
		objects("a field missing in the prediction", `"type": "box", "opacity": 0.5`, `"type": "box"`, ""),
		objects("a field missing in the truth", `"type": "box"`, `"type": "box", "opacity": 0.5`, ""),
		objects("null is missing", `"type": "box", "opacity": 0.5`, `"type": "box", "opacity": null`, ""),
		{"an object that is none", stage("s", "", "{}"), scenes(stage("s", "", "7")), "it is not an object"},

		objects("a cone about Y", `"type": "cone", "rotation": [0, 1, 0]`, `"type": "cone", "rotation": [0, 3, 0]`, ""),
		objects("a sphere about Y", `"type": "sphere", "rotation": [0, 1, 0]`, `"type": "sphere", "rotation": [0, 3, 0]`, ""),
		objects("a cylinder about Y", `"type": "cylinder", "rotation": [0, 1, 0]`, `"type": "cylinder", "rotation": [0, 3, 0]`, ""),
		objects("a box about Y", `"type": "box", "rotation": [0, 1, 0]`, `"type": "box", "rotation": [0, 3, 0]`, "rotation is"),
		objects("a cone about X", `"type": "cone", "rotation": [0, 1, 0]`, `"type": "cone", "rotation": [0.2, 1, 0]`, "rotation is"),
		objects("a cone about Z", `"type": "cone", "rotation": [0, 1, 0]`, `"type": "cone", "rotation": [0, 1, 0.2]`, "rotation is"),
		objects("by the begin of its name", `"type": "mesh", "name": "Cylinder_2", "rotation": [0, 1, 0]`, `"type": "mesh", "rotation": [0, 3, 0]`, ""),
		objects("by no other part of its name", `"type": "mesh", "name": "big cylinder", "rotation": [0, 1, 0]`, `"type": "mesh", "rotation": [0, 3, 0]`, "rotation is"),
	})
	check(t, 0.5, []pair{
		objects("at a wider tolerance", `"position": [1, 2, 3]`, `"position": [1.5, 2, 3]`, ""),
		objects("above a wider tolerance", `"position": [1, 2, 3]`, `"position": [1.51, 2, 3]`, "position is"),
	})
}

func TestPairsOfObjects(t *testing.T) {
	t.Parallel()
	box := func(x string) string { return fmt.Sprintf(`{"name": "b", "type": "box", "position": [%s, 0, 0]}`, x) }
	two := stage("s", "", box("1"), box("5"))
	check(t, usual, []pair{
		{"another order", two, scenes(stage("s", "", box("5"), box("1"))), ""},
		{"an object too many", two, scenes(stage("s", "", box("5"), box("1"), box("9"))), "3 objects, expected 2"},
		{"an object is missing", two, scenes(stage("s", "", box("5"))), "1 objects, expected 2"},
		{"one twice", two, scenes(stage("s", "", box("5"), box("5"))), "position is [5,0,0], expected [1,0,0]"},
		// The first pair without errors is taken, although the second needs it.
		{"greedy", stage("s", "", box("1"), box("1.1")), scenes(stage("s", "", box("1.1"), box("0.9"))), "position is"},
	})
}

func TestWhichSceneCounts(t *testing.T) {
	t.Parallel()
	named := func(name string) string { return fmt.Sprintf(`{"name": %q, "type": "box"}`, name) }
	truth := stage("house", "", named("wall"), named("roof"))
	other := func(name string) string { return stage(name, "", `{"name": "x", "type": "cone"}`) }
	check(t, usual, []pair{
		{"by its name", truth, scenes(other("1"), stage("house", "", named("a"), named("b")), stage("2", "", named("wall"), named("roof"))), ""},
		{"a wrong one with the name", truth, scenes(other("house"), stage("2", "", named("wall"), named("roof"))), "1 objects"},
		{"by the names of its objects", truth, scenes(other("1"), stage("2", "", named("wall"), named("roof")), stage("3", "", named("wall"))), ""},
		{"by most of them", truth, scenes(stage("3", "", named("wall")), stage("2", "", named("wall"), named("roof"))), ""},
		{"a name twice counts once", truth, scenes(stage("1", "", named("wall"), named("wall"), named("wall")), stage("2", "", named("wall"), named("roof"))), ""},
		{"only one", truth, scenes(stage("z", "", named("a"), named("b"))), ""},
		{"a scene alone", truth, truth, ""},
		{"none", truth, scenes(), "no scenes"},
		{"no list", truth, `{"scenes": 7}`, "no scenes"},
		{"a scene without objects", truth, `{"scenes": [{"name": "house"}]}`, "no list of objects"},
		{"a truth in a list", scenes(truth), scenes(truth), ""},
		{"an empty truth is 0", stage("house", ""), scenes(stage("house", "")), "empty"},
	})
	if _, err := Compare(document.Object{"name": "x"}, document.Object{}, usual); err == nil {
		t.Error("a truth without a scene is not an error")
	}
}

func TestSettings(t *testing.T) {
	t.Parallel()
	view := func(name, expected, predicted, want string) pair {
		return pair{name, stage("s", expected), scenes(stage("s", predicted)), want}
	}
	check(t, usual, []pair{
		view("the same", `"showGrid": true, "fov": 50`, `"fov": 50, "showGrid": true, "more": 1`, ""),
		view("the grid", `"showGrid": true`, `"showGrid": false`, "showGrid is"),
		view("the axes", `"showAxes": true`, `"showAxes": false`, "showAxes is"),
		view("the background", `"backgroundColor": "#ffffff"`, `"backgroundColor": "#FFFFFF"`, "backgroundColor is"),
		view("the same background", `"backgroundColor": "#ffffff"`, `"backgroundColor": "#ffffff"`, ""),
		view("fov at the tolerance", `"fov": 50`, `"fov": 50.01`, ""),
		view("fov above it", `"fov": 50`, `"fov": 50.011`, "fov is"),
		view("fov below it", `"fov": 50`, `"fov": 49.989`, "fov is"),
		view("orthoZoom at the tolerance", `"orthoZoom": 1`, `"orthoZoom": 0.99`, ""),
		view("orthoZoom above it", `"orthoZoom": 1`, `"orthoZoom": 1.02`, "orthoZoom is"),
		view("fov as text", `"fov": 50`, `"fov": "50"`, "fov is"),
		view("missing in the prediction", `"fov": 50, "showGrid": true`, ``, ""),
		view("missing in the truth", `"showGrid": true`, `"showGrid": true, "fov": 1`, ""),
		view("other settings", `"showGrid": true, "snap": 1`, `"showGrid": true, "snap": 2`, ""),
	})
}

// Opacity has the tolerance of other numbers.
func TestOpacity(t *testing.T) {
	t.Parallel()
	check(t, usual, []pair{objects("near", `"opacity": 0.5, "scale": [1, 1, 1]`, `"opacity": 0.6, "scale": [1.1, 1, 1]`, "")})
}
