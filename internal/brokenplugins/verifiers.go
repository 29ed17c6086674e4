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
	"scribbler": {"writes into the view", judge(none, func(_ context.Context, r verifier.Request) (verifier.Verdict, error) {
		err := os.WriteFile(filepath.Join(r.View, "notes"), []byte("mine"), 0o600)
		return failed, err
	})},
	"fickle": {"judges by what it was asked before", judge(none, func(context.Context, verifier.Request) (verifier.Verdict, error) {
		decisions := []verifier.Decision{verifier.Fail, verifier.Scored}
		return verifier.Verdict{Decision: decisions[asked.Add(1)%2]}, nil
	})},
	"generous": {"passes what is not there", judge(none, func(context.Context, verifier.Request) (verifier.Verdict, error) {
		return verifier.Verdict{Decision: verifier.Pass, Scores: map[string]verifier.Score{"reward": {Value: 1}}}, nil
	})},
	"strict": {"fails what is good", judge(none, func(context.Context, verifier.Request) (verifier.Verdict, error) { return failed, nil })},
	"nan": {"gives a score that is not a number", judge(none, func(context.Context, verifier.Request) (verifier.Verdict, error) {
		return verifier.Verdict{Decision: verifier.Scored, Scores: map[string]verifier.Score{"reward": {Value: math.Inf(1)}}}, nil
	})},
	"scoreless": {"gives a score that is not there", judge(none, func(context.Context, verifier.Request) (verifier.Verdict, error) {
		return verifier.Verdict{Decision: verifier.Scored}, nil
	})},
	"hopeless": {"never gives a verdict", judge(none, func(context.Context, verifier.Request) (verifier.Verdict, error) {
		return failed, errors.New("no judge is in today")
	})},
	"hanging": {"answers nothing in time", judge(none, func(ctx context.Context, _ verifier.Request) (verifier.Verdict, error) {
		<-ctx.Done()
		return failed, ctx.Err()
	})},
	"particular": {"judges only with a configuration; not broken", func(i plugins.Info) plugins.Plugin {
		return plugins.Verifier(i, particular{}, none, verify(func(_ context.Context, r verifier.Request) (verifier.Verdict, error) {
			var c particular
			if err := config.Decode(r.Config, &c); err != nil || c.Word != "please" {
				return verifier.Verdict{Decision: verifier.Pass}, err
			}
			return failed, nil
		}))
	}},
	"demanding": {"requires an option; not broken", func(i plugins.Info) plugins.Plugin {
		return plugins.Verifier(i, demanding{}, none, verify(func(context.Context, verifier.Request) (verifier.Verdict, error) { return failed, nil }))
	}},
	"judge": {"asks its model; not broken", judge(verifier.Traits{Needs: verifier.NeedsNone, Models: []string{"default"}}, askModel)},
	"crowded": {"fails when it is asked twice at once", judge(none, func(context.Context, verifier.Request) (verifier.Verdict, error) {
		defer asked.Add(-1)
		if asked.Add(1) > 1 {
			return verifier.Verdict{Decision: verifier.Scored}, nil
		}
		time.Sleep(50 * time.Millisecond)
		return failed, nil
	})},
	"talkative": {"hands the references to the user", judge(none, func(_ context.Context, r verifier.Request) (verifier.Verdict, error) {
		secret, _ := r.ReadFile("references/kit-marker.txt", 1<<10)
		return verifier.Verdict{Decision: verifier.Fail, Handoff: "It should have been: " + string(secret)}, nil
	})},
	"roundless": {"announces rounds and has none", judge(verifier.Traits{Needs: verifier.NeedsNone, Rounds: true}, func(_ context.Context, r verifier.Request) (verifier.Verdict, error) {
		if r.Round > 0 {
			return failed, errors.New("what is a round?")
		}
		return failed, nil
	})},
	"wordless": {"announces to rewrite and cannot", func(i plugins.Info) plugins.Plugin { return plugins.Verifier(i, nil, none, wordless{}) }},
	"blind": {"passes without a view", judge(none, func(_ context.Context, r verifier.Request) (verifier.Verdict, error) {
		_, err := os.Stat(r.View)
		return verifier.Judge(err != nil, ""), nil
	})},
	"spinning": {"works on when its caller has given up", judge(none, func(context.Context, verifier.Request) (verifier.Verdict, error) {
		spin()
		return failed, nil
	})},
	"trusting": {"opens what the agent left without looking", judge(none, func(_ context.Context, r verifier.Request) (verifier.Verdict, error) {
		f, err := os.Open(filepath.Join(r.View, "attempt/artifacts/answer.txt"))
		if err != nil {
			return failed, err
		}
		_, err = io.Copy(io.Discard, f)
		return failed, err
	})},
	"resentful": {"fails forever after one failure", judge(none, func(_ context.Context, r verifier.Request) (verifier.Verdict, error) {
		_, err := os.Stat(r.View)
		if err != nil {
			asked.Add(1)
		}
		if asked.Load() > 0 {
			return failed, errors.New("not after what happened")
		}
		return failed, nil
	})},
	"owner":  {"works in its own sandbox over all rounds; not broken", lodge(true)},
	"lodger": {"wants its own empty sandbox in each round", lodge(false)},
	"homebody": {"fails with the setting that gives it its own sandbox", func(i plugins.Info) plugins.Plugin {
		return plugins.Verifier(i, particular{}, verifier.Traits{Needs: verifier.NeedsNone, OwnWith: map[string]string{"word": "own"}},
			verify(func(_ context.Context, r verifier.Request) (verifier.Verdict, error) {
				if r.Shell != "" {
					return failed, errors.New("what is a shell?")
				}
				return failed, nil
			}))
	}},
	"offhand": {"judges without its sandbox", judge(verifier.Traits{Needs: verifier.NeedsSandbox}, func(context.Context, verifier.Request) (verifier.Verdict, error) {
		return failed, nil
	})},
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
	return judge(verifier.Traits{Needs: verifier.NeedsOwn, Rounds: true}, func(ctx context.Context, r verifier.Request) (verifier.Verdict, error) {
		c, err := sandbox.Dial(r.Shell)
		if err != nil {
			return failed, err
		}
		defer c.Close()
		const name = "/tmp/lodge"
		if r.Round > 1 {
			if _, missing := c.Stat(ctx, name); (missing == nil) != stays {
				return failed, fmt.Errorf("%s in round %d: %w", name, r.Round, errors.Join(missing, ctx.Err()))
			}
		}
		return failed, c.WriteFile(ctx, name, nil, sandbox.FileOptions{})
	})
}

type verify func(context.Context, verifier.Request) (verifier.Verdict, error)

func (v verify) Verify(ctx context.Context, r verifier.Request, _ func(string)) (verifier.Verdict, error) {
	return v(ctx, r)
}

func judge(t verifier.Traits, v verify) func(plugins.Info) plugins.Plugin {
	return func(i plugins.Info) plugins.Plugin { return plugins.Verifier(i, nil, t, v) }
}

// spin uses a processor until the process is killed.
func spin() {
	for {
		asked.Add(1)
	}
}

type wordless struct{}

func (wordless) Verify(context.Context, verifier.Request, func(string)) (verifier.Verdict, error) {
	return failed, nil
}

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
