package conform_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/berth-eval/berth/cmd/berth/internal/conform"
	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/conformance"
	"github.com/berth-eval/berth/plugins/environment"
)

// built is the folder with the binaries that the tests try: made once, by the
// toolchain that runs the tests.
var built string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "conform")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		built = dir
		for out, pkg := range map[string]string{"sandboxd": "./cmd/berth-sandboxd", "broken": "./internal/brokenplugins"} {
			cmd := exec.CommandContext(context.Background(), "go", "build", "-tags", "grpcnotrace", "-trimpath", "-o", filepath.Join(dir, out), pkg)
			cmd.Dir, cmd.Env = "../../../..", append(os.Environ(), "CGO_ENABLED=0")
			if text, err := cmd.CombinedOutput(); err != nil {
				panic(string(text))
			}
		}
		return m.Run()
	}())
}

// TestWhatCannotRunHereIsRefusedOnce: sixty failures with the same words would
// hide that there is one reason, and that the plugin is not at fault.
func TestWhatCannotRunHereIsRefusedOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	shells := t.TempDir() // has a folder for each environment in which the others are tried
	for _, name := range []string{"stranded", "unfurnished", "rambler", "generous"} {
		own := filepath.Join(shells, name)
		if err := errors.Join(os.Mkdir(own, 0o700), os.Symlink(filepath.Join(built, "broken"), filepath.Join(own, plugins.ProgramPrefix+name)),
			os.Symlink(filepath.Join(built, "broken"), filepath.Join(dir, name))); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		plugin, shells string
		err            string // empty: it needs no sandbox, and is tried
	}{
		{plugin: "unfurnished", err: `test environment "unfurnished": the environment cannot create a sandbox on this machine, so its clauses were not tested: the image of the kit's sandboxes (the environment's own) cannot be prepared: pull: no such host: connect`},
		{plugin: "rambler", shells: "unfurnished", err: `environment "unfurnished" for the test cannot create a sandbox on this machine`},
		{plugin: "generous", shells: "unfurnished"},
		{plugin: "stranded", err: `test environment "stranded": the environment cannot create a sandbox on this machine, so its clauses were not tested: No engine runs here. Start it.`},
		{plugin: "rambler", err: `environment "stranded" for the test cannot create a sandbox on this machine`},
		{plugin: "generous"},
	} {
		t.Run(tt.plugin+" "+tt.shells, func(t *testing.T) {
			t.Parallel()
			in := cmp.Or(tt.shells, "stranded")
			var results []conform.Result
			err := conform.Test(t.Context(), conform.Options{
				Binary: filepath.Join(dir, tt.plugin), Sandboxd: filepath.Join(built, "sandboxd"), Log: zerolog.Nop(), Shells: in, Dirs: []string{filepath.Join(shells, in)},
			}, func(r conform.Result) { results = append(results, r) })
			failed := slices.ContainsFunc(results, func(r conform.Result) bool { return r.Status == conformance.Fail })
			switch {
			case tt.err == "":
				if err != nil || !failed {
					t.Errorf("got error %v and %d results; want no error, and the clause that it breaks", err, len(results))
				}
			case !errors.Is(err, environment.ErrRefused) || !strings.Contains(err.Error(), tt.err):
				t.Errorf("got %v; want one refusal with %q", err, tt.err)
			case failed:
				t.Errorf("clauses failed beside the refusal: %+v", results)
			}
		})
	}
}

// TestAConfigurationReachesThePlugin: one that the plugin does not take is one
// refusal, and one that it takes is what every clause is tried with.
func TestAConfigurationReachesThePlugin(t *testing.T) {
	t.Parallel()
	binary := filepath.Join(t.TempDir(), "particular")
	if err := os.Symlink(filepath.Join(built, "broken"), binary); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		config, err string
		failed      bool
	}{
		{config: `{"word": "please"}`},
		{config: `{"word": "now"}`, failed: true},
		{config: `{"wrod": "please"}`, err: `test verifier "particular": the plugin rejects the configuration: wrod: Unknown name`},
	} {
		failed := false
		err := conform.Test(t.Context(), conform.Options{
			Binary: binary, Config: json.RawMessage(tt.config), Sandboxd: filepath.Join(built, "sandboxd"), Log: zerolog.Nop(), Dirs: []string{},
		}, func(r conform.Result) { failed = failed || r.Status == conformance.Fail })
		if failed != tt.failed || (err == nil) != (tt.err == "") || err != nil && !strings.HasPrefix(err.Error(), tt.err) {
			t.Errorf("%s: a clause failed: %t, error %v; want %t and %q", tt.config, failed, err, tt.failed, tt.err)
		}
	}
}

func TestOnlyAPluginCanBeTested(t *testing.T) {
	t.Parallel()
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, []byte("#!/bin/sh\necho hello\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	loud := filepath.Join(t.TempDir(), "loud")
	if err := os.WriteFile(loud, []byte("#!/bin/sh\necho hello\n"), 0o700); err != nil { //nolint:gosec // it is to be run
		t.Fatal(err)
	}
	for binary, want := range map[string]string{
		filepath.Join(t.TempDir(), "gone"): "no such file",
		plain:                              "not an executable file",
		loud:                               "test ",
	} {
		err := conform.Test(t.Context(), conform.Options{Binary: binary, Log: zerolog.Nop()}, func(r conform.Result) {
			t.Errorf("%s: a clause was tried: %+v", binary, r)
		})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v; want an error with %q", binary, err, want)
		}
	}
}
