package timeline

import (
	"fmt"
	"strings"
	"testing"

	"github.com/berth-eval/berth/verifiers/compare/internal/document"
)

// exported is a document with one track for each list of elements.
func exported(tracks ...string) string {
	return `{"operations": [{"type": "EXPORT_COMPLETE", "timestamp": 1, "data": {"timeline": [` + strings.Join(tracks, ",") + `]}}]}`
}

func track(index int, elements ...string) string {
	return fmt.Sprintf(`{"trackIndex": %d, "elements": [%s]}`, index, strings.Join(elements, ","))
}

// element has further fields in more.
func element(kind, name string, start, long int, more string) string {
	return fmt.Sprintf(`{"elementId": "e", "mediaType": %q, "mediaName": %q, "startTimeMs": %d, "durationMs": %d%s}`, kind, name, start, long, more)
}

func video(start, long int) string { return element("VIDEO", "sea.mp4", start, long, "") }

func words(start, long int, more string) string { return element("TEXT", "title", start, long, more) }

func parsed(t *testing.T, text string) any {
	t.Helper()
	v, err := document.Parse(text)
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return v
}

// differences compares two documents.
func differences(t *testing.T, truth, prediction string, timeMs float64) string {
	t.Helper()
	d, err := Compare(parsed(t, truth), parsed(t, prediction), timeMs)
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

func check(t *testing.T, timeMs float64, cases []pair) {
	t.Helper()
	for _, tt := range cases {
		got := differences(t, tt.truth, tt.prediction, timeMs)
		if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestElements(t *testing.T) {
	t.Parallel()
	one := exported(track(0, video(0, 8000)))
	trimmed := func(more string) string { return exported(track(0, element("VIDEO", "sea.mp4", 0, 8000, more))) }
	check(t, 1000, []pair{
		{"the same", one, one, ""},
		{"at the tolerance", one, exported(track(0, video(0, 9000))), ""},
		{"below it", one, exported(track(0, video(0, 7000))), ""},
		{"above the tolerance", one, exported(track(0, video(0, 9001))), "durationMs is 9001"},
		{"too short", one, exported(track(0, video(0, 6999))), "durationMs is 6999"},
		{"a start at the tolerance", exported(track(0, video(0, 2000), video(5000, 2000))), exported(track(0, video(0, 2000), video(6000, 2000))), ""},
		{"a start above it", exported(track(0, video(0, 2000), video(5000, 2000))), exported(track(0, video(0, 2000), video(6001, 2000))), "startTimeMs is 6001"},
		{"shifted", one, exported(track(0, video(60_000, 8000))), ""},
		{"the truth is not shifted", exported(track(0, video(5000, 8000))), exported(track(0, video(5000, 8000))), "startTimeMs"},
		{"another name", one, exported(track(0, element("VIDEO", "Sea.mp4", 0, 8000, ""))), "sea.mp4"},
		{"another type", one, exported(track(0, element("AUDIO", "sea.mp4", 0, 8000, ""))), "VIDEO"},
		{"the type in lower case", one, exported(track(0, element("video", "sea.mp4", 0, 8000, ""))), ""},
		{"an element too many", one, exported(track(0, video(0, 8000), video(9000, 10))), "2 elements, expected 1"},
		{"an element is missing", exported(track(0, video(0, 8000), video(8000, 10))), one, "1 elements, expected 2"},
		{"further keys", one, trimmed(`, "locked": true, "text": "x"`), ""},

		{"a trim at the tolerance", trimmed(`, "trimFromStartMs": 500`), trimmed(`, "trimFromStartMs": 1500`), ""},
		{"a trim above it", trimmed(`, "trimFromStartMs": 500`), trimmed(`, "trimFromStartMs": 1501`), "trimFromStartMs"},
		{"a trim at the end at the tolerance", trimmed(`, "trimFromEndMs": 1000`), trimmed(`, "trimFromEndMs": 0`), ""},
		{"a trim at the end above it", trimmed(`, "trimFromEndMs": 1001`), trimmed(`, "trimFromEndMs": 0`), "trimFromEndMs"},
		{"a trim on one side", trimmed(`, "trimFromStartMs": 0`), one, "trimFromStartMs"},
		{"a trim on the other side", one, trimmed(`, "trimFromEndMs": 0`), "trimFromEndMs"},
		{"null is not a trim", one, trimmed(`, "trimFromEndMs": null`), ""},
		{"a trim that is not a number", trimmed(`, "trimFromEndMs": 1`), trimmed(`, "trimFromEndMs": "1"`), "trimFromEndMs"},

		{"no name", one, exported(track(0, `{"mediaType": "VIDEO", "startTimeMs": 0, "durationMs": 8000}`)), "no valid mediaName"},
		{"no type", one, exported(track(0, `{"mediaName": "sea.mp4", "startTimeMs": 0, "durationMs": 8000}`)), "no valid mediaType"},
		{"no start", one, exported(track(0, `{"mediaName": "sea.mp4", "mediaType": "VIDEO", "durationMs": 8000}`)), "no valid startTimeMs"},
		{"no duration", one, exported(track(0, `{"mediaName": "sea.mp4", "mediaType": "VIDEO", "startTimeMs": 0}`)), "no valid durationMs"},
		{"a duration that is not finite", one, exported(track(0, `{"mediaName": "sea.mp4", "mediaType": "VIDEO", "startTimeMs": 0, "durationMs": 1e999}`)), "no valid durationMs"},
		{"no object", one, exported(track(0, `7`)), "not an object"},

		// In the second case the first element takes what only the second one needs.
		{"the first that fits", exported(track(0, video(0, 4000), video(900, 4000))), exported(track(0, video(0, 4000), video(1800, 4000))), ""},
		{"is not the best", exported(track(0, video(0, 100), video(1000, 4000), video(1500, 5000))), exported(track(0, video(0, 100), video(1000, 4900), video(1200, 3500))), "1500 ms is not there: durationMs is 3500"},
	})
	check(t, 100, []pair{
		{"at a smaller tolerance", one, exported(track(0, video(0, 8100))), ""},
		{"above a smaller tolerance", one, exported(track(0, video(0, 8101))), "durationMs"},
	})
}

func TestWhichExportCounts(t *testing.T) {
	t.Parallel()
	one := exported(track(0, video(0, 8000)))
	data := func(long int) string {
		return fmt.Sprintf(`{"type": "EXPORT_COMPLETE", "data": {"timeline": [%s]}}`, track(0, video(0, long)))
	}
	check(t, 1000, []pair{
		{"the last", one, `{"operations": [` + data(1) + `, {"type": "PLAY"}, ` + data(8000) + `, {"type": "STOP", "data": {}}]}`, ""},
		{"not the first", one, `{"operations": [` + data(8000) + `, ` + data(1) + `]}`, "durationMs"},
		{"none", one, `{"operations": [{"type": "PLAY"}]}`, "no operation EXPORT_COMPLETE"},
		{"no operations", one, `{}`, "no operation EXPORT_COMPLETE"},
		{"no object", one, `[1]`, "no operation EXPORT_COMPLETE"},
		{"an empty timeline", one, `{"operations": [{"type": "EXPORT_COMPLETE", "data": {}}]}`, "0 elements"},
		{"an empty truth is 0", exported(track(0)), exported(track(0)), "no elements"},
		{"bare operations in a list", one, `[` + data(8000) + `]`, ""},
		{"a wrapped truth", `{"scenario": 1, "endpoint_content": ` + one + `}`, one, ""},
		{"a wrapped truth that differs", `{"scenario": 1, "endpoint_content": ` + one + `}`, exported(track(0, video(0, 1))), "durationMs"},
	})
	for name, truth := range map[string]string{
		"no export": `{"operations": []}`, "an element without a name": exported(track(0, `{"mediaType": "VIDEO"}`)), "a text": `"x"`,
	} {
		if _, err := Compare(parsed(t, truth), parsed(t, one), 1000); err == nil {
			t.Errorf("a truth that is %s is not an error", name)
		}
	}
}

func TestTracks(t *testing.T) {
	t.Parallel()
	sound := element("AUDIO", "a.mp3", 0, 8000, "")
	picture := element("IMAGE", "a.png", 0, 8000, "")
	// A text from 0 to 4 s, and a video that covers the given part of it.
	covered := func(on, part int) string {
		return exported(track(0, video(4000-part, 8000)), track(on, words(0, 4000, "")))
	}
	check(t, 1000, []pair{
		{"a video on another track", exported(track(0, video(0, 8000))), exported(track(3, video(0, 8000))), ""},
		{"a sound on another track", exported(track(0, sound)), exported(track(3, sound)), ""},
		{"something else on another track", exported(track(0, picture)), exported(track(3, picture)), "on track 3, expected 0"},
		{"something else on its track", exported(track(0, picture)), exported(track(0, picture)), ""},
		{"a text over a video on its track", covered(1, 501), covered(1, 501), ""},
		{"a text over a video on another track", covered(1, 501), covered(2, 501), "on track 2, expected 1"},
		{"a text beside a video on another track", covered(1, 500), covered(2, 500), ""},
		{"the video of the truth counts", covered(1, 500), covered(2, 501), ""},
		{"a text without a video", exported(track(1, words(0, 4000, ""))), exported(track(2, words(0, 4000, ""))), ""},
		{"a text over a sound", exported(track(0, sound), track(1, words(0, 4000, ""))), exported(track(0, sound), track(2, words(0, 4000, ""))), ""},
		{"a track without an index has its place", exported(`{"elements": []}`, `{"elements": [`+picture+`]}`), exported(track(1, picture)), ""},
	})
}

func TestTexts(t *testing.T) {
	t.Parallel()
	with := func(text, font, background string) string {
		return exported(track(0, words(0, 4000, fmt.Sprintf(`, "text": %q, "fontColor": %q, "backgroundColor": %q, "fontSize": 12`, text, font, background))))
	}
	truth := with("The End", "#ff0000", "#000000")
	check(t, 1000, []pair{
		{"the same", truth, truth, ""},
		{"stripped", truth, with(" The End\n", "#ff0000", "#000000"), ""},
		{"another case", truth, with("The end", "#ff0000", "#000000"), "the text is"},
		{"a colour of the same group", truth, with("The End", "#e01010", "#111111"), ""},
		{"another colour of the letters", truth, with("The End", "#00ff00", "#000000"), "fontColor is green, expected red"},
		{"another background", truth, with("The End", "#ff0000", "#ffffff"), "backgroundColor is white, expected black"},
		{"another size", truth, strings.ReplaceAll(truth, "12}", "40}"), ""},
		{"no text", truth, exported(track(0, words(0, 4000, ""))), "the text is null"},
		{"no colour", truth, exported(track(0, words(0, 4000, `, "text": "The End"`))), "fontColor is null"},
		{"no colour in the truth", exported(track(0, words(0, 4000, `, "text": "The End"`))), truth, ""},
		{
			"two texts at the same time", exported(track(0, words(0, 4000, `, "text": "A"`), words(0, 4000, `, "text": "B"`))),
			exported(track(0, words(0, 4000, `, "text": "B"`), words(0, 4000, `, "text": "A"`))), "",
		},
	})
}

func TestColours(t *testing.T) {
	t.Parallel()
	// From hue, saturation and value, with full numbers where a limit is near.
	for text, want := range map[string]string{
		"#000000": "black", "#323232": "black", "#333333": "grey", "#cccccc": "grey", "#cdcdcd": "white", "#ffffff": "white",
		"#3200ff": "blue", "#320000": "black", "#330000": "red",
		"#ffcdcd": "white", "#ffcbcb": "red", // a saturation of 0.196 and 0.204
		"#ff3e00": "red", "#ff4000": "orange", // hues of 14.6 and 15.06
		"#ffbe00": "orange", "#ffc000": "yellow", // 44.7 and 45.2
		"#d6ff00": "yellow", "#d4ff00": "green", // 69.6 and 70.1
		"#00ffd3": "green", "#00ffd6": "cyan", // 169.6 and 170.4
		"#00abff": "cyan", "#00aaff": "blue", // 199.8 and 200
		"#5400ff": "blue", "#5600ff": "purple", // 259.8 and 260.2
		"#ff0041": "purple", "#ff003e": "red", // 344.7 and 345.4
		"#f00": "red", "#F00F": "red", "#ff000080": "red", "rgb(255, 0, 0)": "red", "rgba(0,0,255,0.5)": "blue", "Red": "red", " navy ": "blue",
		"rgb(300, 0, 0)": `"rgb(300, 0, 0)"`, "#12345": `"#12345"`, "transparent": `"transparent"`, "#gg0000": `"#gg0000"`,
	} {
		if got := colour(text); got != want {
			t.Errorf("colour(%q) = %s, want %s", text, got, want)
		}
	}
}
