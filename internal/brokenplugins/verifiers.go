package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/model/chat"
	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/verifier"
)

var none = verifier.Traits{Needs: verifier.NeedsNone}

// verifiers are the broken verifiers.
var verifiers = table{
	"scribbler": {"writes into the view", fails(none, func(_ context.Context, r verifier.Request) error {
		return os.WriteFile(filepath.Join(r.View, "notes"), []byte("mine"), 0o600)
	})},
	"fickle": {"judges by what it was asked before", judge(none, func(context.Context, verifier.Request) (verifier.Verdict, error) {
		decisions := []verifier.Decision{verifier.Fail, verifier.Scored}
		return verifier.Verdict{Decision: decisions[asked.Add(1)%2]}, nil
	})},
	"generous":  {"passes what is not there", judge(none, always(verifier.Verdict{Decision: verifier.Pass, Scores: reward(1)}))},
	"strict":    {"fails what is good", judge(none, always(failed))},
	"nan":       {"gives a score that is not a number", judge(none, always(verifier.Verdict{Decision: verifier.Scored, Scores: reward(math.Inf(1))}))},
	"scoreless": {"gives a score that is not there", judge(none, always(verifier.Verdict{Decision: verifier.Scored}))},
	"hopeless":  {"never gives a verdict", fails(none, func(context.Context, verifier.Request) error { return errors.New("no judge is in today") })},
	"hanging": {"answers nothing in time", fails(none, func(ctx context.Context, _ verifier.Request) error {
		<-ctx.Done()
		return ctx.Err()
	})},
	"particular": {"judges only with a configuration; not broken", func(i plugins.Info) plugins.Plugin {
		return plugins.Verifier(i, particular{}, none, verify(func(_ context.Context, r verifier.Request) (verifier.Verdict, error) {
			var c particular
			err := config.Decode(r.Config, &c)
			return verifier.Judge(err != nil || c.Word != "please", ""), err
		}))
	}},
	"demanding": {"requires an option; not broken", func(i plugins.Info) plugins.Plugin {
		return plugins.Verifier(i, demanding{}, none, always(failed))
	}},
	"judge": {"asks its model; not broken", judge(verifier.Traits{Needs: verifier.NeedsNone, Models: []string{"default"}}, askModel)},
	"crowded": {"fails when it is asked twice at once", fails(none, func(context.Context, verifier.Request) error {
		defer asked.Add(-1)
		if asked.Add(1) > 1 {
			return errors.New("one after the other")
		}
		time.Sleep(50 * time.Millisecond)
		return nil
	})},
	"talkative": {"hands the references to the user", judge(none, func(_ context.Context, r verifier.Request) (verifier.Verdict, error) {
		secret, _ := r.ReadFile("references/kit-marker.txt", 1<<10)
		return verifier.Verdict{Decision: verifier.Fail, Handoff: "It should have been: " + string(secret)}, nil
	})},
	"roundless": {"announces rounds and has none", fails(verifier.Traits{Needs: verifier.NeedsNone, Rounds: true}, func(_ context.Context, r verifier.Request) error {
		return when(r.Round > 0, "what is a round?")
	})},
	"wordless": {"announces to rewrite and cannot", func(i plugins.Info) plugins.Plugin { return plugins.Verifier(i, nil, none, wordless{always(failed)}) }},
	"blind": {"passes without a view", judge(none, func(_ context.Context, r verifier.Request) (verifier.Verdict, error) {
		_, err := os.Stat(r.View)
		return verifier.Judge(err != nil, ""), nil
	})},
	"spinning": {"works on when its caller has given up", fails(none, func(context.Context, verifier.Request) error {
		spin()
		return nil
	})},
	"trusting": {"opens what the agent left without looking", fails(none, func(_ context.Context, r verifier.Request) error {
		_, err := readAll(filepath.Join(r.View, "attempt/artifacts/answer.txt"))
		return err
	})},
	"resentful": {"fails forever after one failure", fails(none, func(_ context.Context, r verifier.Request) error {
		if _, err := os.Stat(r.View); err != nil {
			asked.Add(1)
		}
		return when(asked.Load() > 0, "not after what happened")
	})},
	"owner":  {"works in its own sandbox over all rounds; not broken", lodge(true)},
	"lodger": {"wants its own empty sandbox in each round", lodge(false)},
	"homebody": {"fails with the setting that gives it its own sandbox", func(i plugins.Info) plugins.Plugin {
		return plugins.Verifier(i, particular{}, verifier.Traits{Needs: verifier.NeedsNone, OwnWith: map[string]string{"word": "own"}},
			verify(func(_ context.Context, r verifier.Request) (verifier.Verdict, error) {
				return failed, when(r.Shell != "", "what is a shell?")
			}))
	}},
	"offhand": {"judges without its sandbox", judge(verifier.Traits{Needs: verifier.NeedsSandbox}, always(failed))},

	"nameless": {"says neither its version nor what it is for", func(i plugins.Info) plugins.Plugin {
		return plugins.Verifier(plugins.Info{Name: i.Name}, nil, none, always(failed))
	}},
	"moody": {"finds another problem in a configuration each time", func(i plugins.Info) plugins.Plugin {
		return plugins.Verifier(i, moody{}, none, always(failed))
	}},
}

type moody struct{}

func (moody) Validate() []config.Problem {
	if n := asked.Add(1); n > 1 { // the kit itself asks once
		return []config.Problem{{Summary: fmt.Sprint("problem ", n)}}
	}
	return nil
}

// asked is state that some of them keep between requests, which they should
// not.
var asked atomic.Int64

var failed = verifier.Verdict{Decision: verifier.Fail}

// particular is the configuration of a verifier that passes everything unless
// the word is set.
type particular struct {
	Word string `berth:"word" doc:"What makes it judge."`
}

type demanding struct {
	Word string `berth:"word" required:"true" doc:"What it cannot do without."`
}

// lodge is a verifier that leaves a file in its own sandbox. In a later round it
// wants the file to be there, or not.
func lodge(stays bool) func(plugins.Info) plugins.Plugin {
	return fails(verifier.Traits{Needs: verifier.NeedsOwn, Rounds: true}, func(ctx context.Context, r verifier.Request) error {
		c, err := sandbox.Dial(r.Shell)
		if err != nil {
			return err
		}
		defer c.Close()
		const name = "/tmp/lodge"
		if r.Round > 1 {
			if _, missing := c.Stat(ctx, name); (missing == nil) != stays {
				return fmt.Errorf("%s in round %d: %w", name, r.Round, errors.Join(missing, ctx.Err()))
			}
		}
		return c.WriteFile(ctx, name, nil, sandbox.FileOptions{})
	})
}

type verify func(context.Context, verifier.Request) (verifier.Verdict, error)

func (v verify) Verify(ctx context.Context, r verifier.Request, _ func(string)) (verifier.Verdict, error) {
	return v(ctx, r)
}

func judge(t verifier.Traits, v verify) func(plugins.Info) plugins.Plugin {
	return func(i plugins.Info) plugins.Plugin { return plugins.Verifier(i, nil, t, v) }
}

// fails is a verifier that fails every work, or gives an error.
func fails(t verifier.Traits, do func(context.Context, verifier.Request) error) func(plugins.Info) plugins.Plugin {
	return judge(t, func(ctx context.Context, r verifier.Request) (verifier.Verdict, error) { return failed, do(ctx, r) })
}

func always(v verifier.Verdict) verify {
	return func(context.Context, verifier.Request) (verifier.Verdict, error) { return v, nil }
}

func reward(value float64) map[string]verifier.Score {
	return map[string]verifier.Score{"reward": {Value: value}}
}

// readAll reads a file to its end, whatever it is.
func readAll(path string) (int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return io.Copy(io.Discard, f)
}

// spin uses a processor until the process is killed.
func spin() {
	for {
		asked.Add(1)
	}
}

type wordless struct{ verify }

func (wordless) Rewrite(context.Context, verifier.Request, verifier.Verdict, string) (string, error) {
	return "", errors.New("words fail me")
}

// askModel judges an existing answer by the reply of the model.
func askModel(ctx context.Context, r verifier.Request) (verifier.Verdict, error) {
	got, err := r.ReadFile("attempt/artifacts/answer.txt", 1<<10)
	if err != nil {
		return failed, nil //nolint:nilerr // bad work
	}
	m, err := chat.Dial(r.Models["default"])
	if err != nil {
		return failed, err
	}
	defer m.Close()
	reply, err := m.Ask(ctx, chat.Request{Messages: []chat.Message{{Role: chat.User, Text: "Is this good? " + string(bytes.TrimSpace(got))}}})
	return verifier.Judge(strings.Contains(reply.Text, `"pass": true`), reply.Text), err
}
