package view

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/berth-eval/berth/cmd/berth/internal/report"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/plugins/surface"
	"github.com/berth-eval/berth/plugins/trajectory"
)

// pictureFile is a picture of that size.
func pictureFile(t testing.TB, width, height int) []byte {
	t.Helper()
	i := image.NewRGBA(image.Rect(0, 0, width, height))
	for x := range width {
		for y := range height {
			i.Set(x, y, color.RGBA{uint8(255 * x / width), uint8(255 * y / height), 120, 255})
		}
	}
	var b bytes.Buffer
	if err := png.Encode(&b, i); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// files writes what an attempt has beside its record, with hostile texts in it.
func (w *site) files(t testing.TB, dir string, add func(string, any)) {
	t.Helper()
	now := time.Now()
	at := json.RawMessage(`{"x":30,"y":40,"text":"<script>1</script>"}`)
	add(record.SurfaceFile, surface.Line{
		Time: now, Kind: "observe", Text: evil, Structure: json.RawMessage(`{"elements":{"12":{"box":[10,20,80,30]},"13":{"box":[1,2]},"14":{"box":null}}}`),
		Frames: []surface.Frame{{Name: "screenshot", File: "page.png"}},
	})
	add(record.SurfaceFile, surface.Line{Time: now, Kind: surface.KindAct, Step: 1, Action: "click", Arguments: json.RawMessage(`{"bid":"12"}`), Frames: []surface.Frame{{File: "page.png"}}})
	add(record.SurfaceFile, surface.Line{Time: now, Kind: surface.KindAct, Step: 2, Action: evil, Arguments: at})
	add(record.SurfaceFile, surface.Line{Time: now, Kind: evil, Action: evil, Text: evil, Error: evil, Frames: []surface.Frame{{Name: evil, File: "broken.png"}, {File: "../../x.png"}}})
	add(record.LogFile, report.LogLine{Time: now, From: evil, Text: evil})
	sub, err := json.Marshal(trajectory.Trajectory{
		Agent: trajectory.Agent{Name: evil}, Steps: []trajectory.Step{{StepID: 1, Source: "agent", Message: trajectory.Text("I am below " + evil)}},
		Subagents: []trajectory.Trajectory{{TrajectoryID: evil, Steps: []trajectory.Step{{StepID: 1, Source: "agent", Message: trajectory.Text("deeper")}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"frames/broken.png":          "no picture",
		"frames/page.png":            string(pictureFile(t, 200, 100)),
		"frames/huge.png":            "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x7f\xff\xff\xff\x7f\xff\xff\xff\x08\x02\x00\x00\x00\x00\x00\x00\x00",
		"model/exchanges.jsonl":      `{"kind":"` + `<script>1</script>","model":"<b>","status":200,"request":"../../../etc/passwd"}` + "\nnot JSON\n",
		"artifacts/a.txt":            evil,
		"artifacts/t.csv":            "name,n\n<b>,2\n\"" + evil + "\",3\n",
		"agent/sub.json":             string(sub),
		"verifier/logs/test-out.txt": evil,
		"agent/terminal.cast":        fmt.Sprintf(`{"version":2,"width":20,"height":5,"timestamp":%d}`, now.Unix()-10) + "\n[0.1,\"o\",\"\\u001b[31mhello\"]\n[\"x\"]\nnot JSON\n[5,\"o\",\"\\nagain\"]\n[9000,\"o\",\"\\nlast\"]\n",
		"agent/zz-odd.cast":          `{"version":2,"width":99999999,"height":-4,"timestamp":1e300,"title":"<script>"}` + "\n[-5,\"o\",\"\\u001b]8;;javascript:1\\u0007<script>\"]\n[1,\"r\",\"9999999x0\"]\n",
	} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err = errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
}

// pages are the addresses of all pages, and of parts that are loaded into them.
func (w *site) pages(trial string) []string {
	run := "/run/" + filepath.Base(w.run.Dir) + "/"
	at := run + "trial/" + trial + "/1/"
	key := url.QueryEscape(filepath.Base(w.run.Dir) + "/" + trial + "/1")
	return []string{
		"/", "/?filter=" + url.QueryEscape(evil), run, run + "trials", run + "trials?select=" + url.QueryEscape(`outcome == "passed"`),
		run + "trials?select=" + url.QueryEscape(evil), run + "report", at, at + "?step=2",
		at + "exchanges", at + "file?name=artifacts/a.txt", at + "file?name=frames/broken.png", at + "file?name=frames/page.png", at + "file?name=frames/huge.png",
		at + "file?name=agent/terminal.cast", at + "file?name=agent/zz-odd.cast", at + "file?name=artifacts/t.csv",
		"/compare?a=" + key + "&b=" + key,
		at + "steps?at=0", at + "surface", at + "subagent?path=agent/sub.json",
	}
}
