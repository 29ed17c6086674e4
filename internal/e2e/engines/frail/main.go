// Command frail is a verifier for tests: it passes an agent that left the
// artifact "good", and its process ends when the agent left "deadly".
package main

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/verifier"
)

type frail struct{}

func (frail) Verify(ctx context.Context, r verifier.Request, _ func(string)) (verifier.Verdict, error) {
	has := func(name string) bool {
		_, err := os.Stat(filepath.Join(r.View, "attempt", "artifacts", "logs", "artifacts", name))
		return err == nil
	}
	wait, cancel := context.WithTimeout(ctx, time.Second) // others are being verified meanwhile
	defer cancel()
	<-wait.Done()
	if has("deadly") {
		os.Exit(7) //nolint:forbidigo // a plugin that dies is what this one is for
	}
	return verifier.Judge(has("good"), "looked for the artifact"), nil
}

func main() {
	info := plugins.Info{Name: "frail", Version: "1.0.0", Doc: "Dies of one artifact and passes another."}
	plugins.Serve(plugins.Verifier(info, nil, verifier.Traits{Needs: verifier.NeedsNone}, frail{}))
}
