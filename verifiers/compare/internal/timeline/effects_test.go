package timeline

import (
	"fmt"
	"strings"
	"testing"
)

// scene is a timeline of a clip up to 8 s and one up to 20 s, with effects.
func scene(effects ...string) string {
	return exported(
		fmt.Sprintf(`{"trackIndex": 0, "effectSubTrack": {"items": [%s]}, "elements": [%s, %s]}`,
			strings.Join(effects, ","), element("VIDEO", "sea.mp4", 0, 8000, ""), element("VIDEO", "sun.mp4", 8000, 12_000, "")))
}

func item(kind string, start, end int, params string) string {
	return fmt.Sprintf(`{"type": %q, "startTimeMs": %d, "endTimeMs": %d, "params": {%s}}`, kind, start, end, params)
}

func light(start, end int, params string) string { return item("light-adjustment", start, end, params) }

func fade(start, end int, params string) string { return item("fade-out", start, end, params) }

// of is a truth of a scenario.
func of(scenario int) string {
	return fmt.Sprintf(`{"scenario": %d, "endpoint_content": %s}`, scenario, scene())
}

func TestLight(t *testing.T) {
	t.Parallel()
	strong := `"contrast": 1.2, "brightness": 0, "saturation": 1`
	check(t, 1000, []pair{
		{"no light effect", of(7), scene(), ""},
		{"the whole clip", of(7), scene(light(0, 8000, strong)), ""},
		{"the other clip", of(7), scene(light(8000, 20_000, strong)), ""},
		{"at the tolerance", of(7), scene(light(1000, 7000, strong)), ""},
		{"above it at the begin", of(7), scene(light(1001, 8000, strong)), "no light effect covers"},
		{"above it at the end", of(7), scene(light(0, 6999, strong)), "no light effect covers"},
		{"no more contrast", of(7), scene(light(0, 8000, `"contrast": 1`)), "no light effect covers"},
		{"contrast alone", of(7), scene(light(0, 8000, `"contrast": 1.01`)), ""},
		{"another brightness", of(7), scene(light(0, 8000, `"contrast": 1.2, "brightness": 0.1`)), "no light effect covers"},
		{"another saturation", of(7), scene(light(0, 8000, `"contrast": 1.2, "saturation": 1.1`)), "no light effect covers"},
		{"one of two", of(7), scene(light(0, 100, strong), light(0, 8000, strong)), ""},
		{"other effects", of(7), scene(fade(0, 10, "")), ""},
		{"another scenario", of(8), scene(light(1001, 8000, strong)), ""},
		{"bare operations", scene(), scene(light(1001, 8000, strong), fade(1, 2, ""), fade(3, 4, "")), ""},
	})
}

func TestFade(t *testing.T) {
	t.Parallel()
	check(t, 1000, []pair{
		{"the last 3 s", of(11), scene(fade(17_000, 20_000, "")), ""},
		{"of another clip", of(11), scene(fade(5000, 8000, "")), ""},
		{"at the tolerance", of(11), scene(fade(16_000, 19_000, "")), ""},
		{"above it at the begin", of(11), scene(fade(15_999, 20_000, "")), "does not cover the last 3000 ms"},
		{"above it at the end", of(11), scene(fade(17_000, 21_001, "")), "does not cover the last 3000 ms"},
		{"none", of(11), scene(), "0 fade-outs"},
		{"two", of(11), scene(fade(17_000, 20_000, ""), fade(5000, 8000, "")), "2 fade-outs"},
		{"a fade in", of(11), scene(item("fade-in", 17_000, 20_000, "")), "0 fade-outs"},
	})
	moved := strings.NewReplacer(`"startTimeMs": 8000`, `"startTimeMs": 18000`, `"startTimeMs": 0`, `"startTimeMs": 10000`).Replace(scene(fade(27_000, 30_000, "")))
	check(t, 1000, []pair{{"effects are shifted as well", of(11), moved, ""}})
}

func TestLightAndFade(t *testing.T) {
	t.Parallel()
	first := light(0, 4000, `"contrast": 1.5`)
	out := `"curve": "ease-out", "fromOpacity": 1, "toOpacity": 0`
	last := fade(17_000, 20_000, out)
	check(t, 1000, []pair{
		{"both", of(14), scene(first, last), ""},
		{"no light", of(14), scene(last), "no light effect raises"},
		{"a light at the tolerance", of(14), scene(light(1000, 5000, `"contrast": 1.5`), last), ""},
		{"a light above it", of(14), scene(light(1001, 4000, `"contrast": 1.5`), last), "no light effect raises"},
		{"a light that is too long", of(14), scene(light(0, 5001, `"contrast": 1.5`), last), "no light effect raises"},
		{"a light without contrast", of(14), scene(light(0, 4000, `"contrast": 1`), last), "no light effect raises"},
		{"no fade", of(14), scene(first), "0 fade-outs"},
		{"two fades", of(14), scene(first, last, last), "2 fade-outs"},
		{"another curve", of(14), scene(first, fade(17_000, 20_000, `"curve": "linear"`)), `curve of the fade is "linear"`},
		{"no curve", of(14), scene(first, fade(17_000, 20_000, "")), "curve of the fade is null"},
		{"opacities by default", of(14), scene(first, fade(17_000, 20_000, `"curve": "Ease-Out"`)), ""},
		{"not from 1", of(14), scene(first, fade(17_000, 20_000, `"curve": "ease-out", "fromOpacity": 0.9`)), "from 0.9 to 0"},
		{"not to 0", of(14), scene(first, fade(17_000, 20_000, `"curve": "ease-out", "toOpacity": 0.1`)), "from 1 to 0.1"},
		{"in the middle of a clip", of(14), scene(first, fade(10_000, 13_000, out)), "does not cover the last 3000 ms"},
	})
}
