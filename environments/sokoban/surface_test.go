package main

import (
	"bytes"
	"context"
	"encoding/json"
	"image/color"
	"image/png"
	"strings"
	"testing"

	"github.com/berth-eval/berth/environments/internal/surfaces"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/surface/surfacetest"
)

// vector is a level that two moves to the right solve.
const vector = "######/#@$ .#/######"

func TestTheKitPasses(t *testing.T) {
	t.Parallel()
	surfacetest.Run(t, surfacetest.Subject{Surface: newSurface(), Request: environment.SurfaceRequest{Level: vector}})
	surfacetest.Run(t, surfacetest.Subject{Surface: newSurface(), Request: environment.SurfaceRequest{
		Level: vector, Settings: json.RawMessage(`{"restart":true,"max_steps":9}`), Config: json.RawMessage(`{"size":32}`),
	}})
}

// playing opens a level and resets it.
func playing(t *testing.T, level, settings string) (*surfaces.Kind, string) {
	t.Helper()
	s := newSurface()
	id, err := s.OpenSurface(t.Context(), environment.SurfaceSpec{Settings: json.RawMessage(settings), Frames: t.TempDir()})
	if err == nil {
		_, err = s.Reset(t.Context(), id, environment.Start{Level: level})
	}
	if err != nil {
		t.Fatal(err)
	}
	return s, id
}

func act(t *testing.T, s *surfaces.Kind, id, name string) environment.Step {
	t.Helper()
	step, err := s.Act(t.Context(), id, environment.Call{Name: name}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return step
}

func TestASolvedLevelIsDone(t *testing.T) {
	t.Parallel()
	s, id := playing(t, vector, `{}`)
	for i, want := range []float64{-0.1, -0.1 + 1 + 10} {
		step := act(t, s, id, "Right")
		if diff := *step.Reward - want; diff > 1e-12 || diff < -1e-12 || step.Done != (i == 1) || step.Truncated {
			t.Errorf("step %d: reward %v, done %v; want %v", i+1, *step.Reward, step.Done, want)
		}
	}
	if step := act(t, s, id, "Left"); step.Error == "" || !step.Done || step.Reward != nil {
		t.Errorf("after the end: %+v", step)
	}
	if step := act(t, s, id, "Restart"); !strings.Contains(step.Error, `no action "Restart"`) {
		t.Errorf("Restart, which is not offered: %+v", step)
	}
}

func TestTheStepsOfALevelEndIt(t *testing.T) {
	t.Parallel()
	s, id := playing(t, vector, `{"max_steps":2}`)
	act(t, s, id, "Up")
	if step := act(t, s, id, "Up"); !step.Truncated || step.Done {
		t.Errorf("got %+v", step)
	}
	if step := act(t, s, id, "Right"); !strings.Contains(step.Error, "2 steps of the level are used up") {
		t.Errorf("got %+v", step)
	}
}

func TestPicturesAreOfThePlace(t *testing.T) {
	t.Parallel()
	s, id := playing(t, "######/#+$*$#/#  . #/######", `{}`)
	seen, err := s.Observe(t.Context(), id, []string{"image", "tiny"})
	if err != nil || len(seen.Frames) != 2 || seen.JSON != nil {
		t.Fatalf("%d frames, %s, %v", len(seen.Frames), seen.JSON, err)
	}
	im, err := png.Decode(bytes.NewReader(seen.Frames[0].Data))
	if err != nil || im.Bounds().Dx() != 6*16 || im.Bounds().Dy() != 4*16 {
		t.Errorf("%v, %v; want 96 × 64", im.Bounds(), err)
	}
	tiny, err := png.Decode(bytes.NewReader(seen.Frames[1].Data))
	if err != nil {
		t.Fatal(err)
	}
	for x, want := range []color.RGBA{{0, 0, 0, 255}, {219, 212, 56, 255}, {142, 121, 56, 255}, {254, 95, 56, 255}, {142, 121, 56, 255}, {0, 0, 0, 255}} {
		if got := color.RGBAModel.Convert(tiny.At(x, 1)); got != want {
			t.Errorf("column %d is %v, want %v", x, got, want)
		}
	}
	for x, want := range []color.RGBA{2: {243, 248, 238, 255}, 3: {254, 126, 125, 255}, 4: {243, 248, 238, 255}} {
		if got := color.RGBAModel.Convert(tiny.At(x, 2)); x >= 2 && got != want {
			t.Errorf("column %d is %v, want %v", x, got, want)
		}
	}
	act(t, s, id, "Down")
	if seen, err = s.Observe(t.Context(), id, []string{"grid"}); err != nil || string(seen.JSON) != `{"grid":"######\n#.$*$#\n#@ . #\n######\n"}` || len(seen.Frames) > 0 {
		t.Errorf("%s, %v", seen.JSON, err)
	}
}

// All of the state is in info, for the host.
func TestInfoHasTheState(t *testing.T) {
	t.Parallel()
	s, id := playing(t, vector, `{}`)
	var got info
	step := act(t, s, id, "Right")
	if err := json.Unmarshal(step.Info, &got); err != nil {
		t.Fatal(err)
	}
	if got.Grid != "######\n# @$.#\n######\n" || !strings.HasPrefix(got.Hash, "sha256:") || got.Steps != 1 || !got.Pushed {
		t.Errorf("%+v", got)
	}
}

func TestBadLevelsAndSettingsAreRefused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ level, settings, config, want string }{
		{"####/#  #/####", "", "", "no player"},
		{"#####/#@$$#/#. ##/#####", "", "", "more boxes than targets"},
		{"#####/#@$.#/# . #/#####", "", "", "fewer boxes than targets"},
		{"####/#@$./####", "", "", "open at the edge, in row 2, column 4"},
		{"####/#@$.#/## #", "", "", "open at the edge"},
		{strings.Repeat("#", 10_000), "", "", "10000 columns"},
		{strings.Repeat("#/", 10_000), "", "", "10000 rows"},
		{"#####/#@$x#/#####", "", "", `row 2, column 4 has "x"`},
		{"#####/#@@.#/#####", "", "", "second player"},
		{"####/#@ #/####", "", "", "no box"},
		{"", "", "", "no player"},
		{vector, `{"max_steps":0}`, "", "max_steps: Number is out of range: Got 0"},
		{vector, `{"num_boxes":-1}`, "", "num_boxes: Number is out of range: Got -1"},
		{vector, "", `{"size":20}`, "The size 20"},
	} {
		n, err := newSurface().Needs(context.Background(), environment.SurfaceRequest{Level: tt.level, Settings: json.RawMessage(tt.settings), Config: json.RawMessage(tt.config)})
		if err != nil || !strings.Contains(strings.Join(n.Refusals, " "), tt.want) {
			t.Errorf("%.30q: %q, %v; want %q", tt.level, n.Refusals, err, tt.want)
		}
	}
}

// A level with a small room and large cells is still a picture.
func TestTheLargestPicture(t *testing.T) {
	t.Parallel()
	wide := strings.Repeat("#", 40)
	level := wide + "/#@$.#" + strings.Repeat("/"+wide, 38)
	s := newSurface()
	id, err := s.OpenSurface(t.Context(), environment.SurfaceSpec{Config: json.RawMessage(`{"size":128}`), Frames: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	seen, err := s.Reset(t.Context(), id, environment.Start{Level: level, Want: []string{"image"}})
	if err != nil || len(seen.Frames) != 1 || len(seen.Frames[0].Data) > 1<<20 {
		t.Fatalf("%d frames, %v", len(seen.Frames), err)
	}
}
