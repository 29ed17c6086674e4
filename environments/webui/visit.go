package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/berth-eval/berth/environments/internal/page"
)

// budget bounds the time of one visit, which is within the time of a call.
const budget = 50 * time.Second

// answerTime is how long a page may take to answer: long enough for a large one on a
// busy machine.
const answerTime = 15 * time.Second

// stopTime bounds the end of a browser.
const stopTime = 5 * time.Second

var errBudget = fmt.Errorf("%w and its actions took too long", page.ErrPage)

// browsing is a browser that was started for one visit.
type browsing struct {
	*page.Browser

	stop      func(context.Context)
	explained func(error) error // adds what the browser printed last, if it has ended
}

// start starts a browser in the sandbox.
func (o *open) start(ctx context.Context, s page.Settings) (b browsing, err error) {
	p, err := page.Start(ctx, page.Launch{Shell: o.shell, Program: o.config.Program, Settings: s})
	if err != nil {
		return b, err
	}
	return browsing{p.Browser, p.Stop, p.Explained}, nil
}

// visit opens a page in its own browser, with a fresh profile and without a
// network, and does its actions, one after the other. see is called with the page
// after it was loaded (0), and after each action (1…); failed is why it could not be
// loaded, or the action not be done. A page that breaks the browser is a failure,
// too. err means that there is no browser, or that ctx has ended.
func (o *open) visit(ctx context.Context, files fs.FS, see func(ctx context.Context, b *page.Browser, n int, failed error) error) (err error) {
	limited, cancel := context.WithTimeoutCause(ctx, budget, errBudget)
	defer cancel()
	c := &o.config
	p, err := o.browse(limited, page.Settings{
		Width: c.Width, Height: c.Height, Files: files,
		ActionTimeout: c.ActionTimeout, Load: c.Load, Answer: answerTime, AcceptDialogs: true, OnePage: true,
	})
	if err != nil {
		return fmt.Errorf("start the browser: %w", err)
	}
	defer func() {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
		defer cancel()
		p.stop(stopping)
	}()
	failed := p.Reset(limited, page.Origin+"/")
	for n := 0; ; n++ {
		if failed == nil {
			failed = errors.Join(p.Complete(limited), wait(limited, c.Settle))
		}
		if failed == nil && limited.Err() != nil {
			failed = context.Cause(limited)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err = see(limited, p.Browser, n, p.explained(failed)); err != nil || n == len(o.task.Actions) {
			return err
		}
		failed = do(limited, p.Browser, &o.task.Actions[n])
	}
}

// do does an action, up to a step that fails.
func do(ctx context.Context, b *page.Browser, a *action) error {
	for i := range a.Steps {
		if err := doStep(ctx, b, &a.Steps[i]); err != nil {
			return err
		}
	}
	return nil
}

func doStep(ctx context.Context, b *page.Browser, s *step) error {
	switch on := s.target(); s.Do {
	case "click":
		return b.ClickOn(ctx, on)
	case "hover":
		return b.HoverOver(ctx, on)
	case "drag":
		return b.Drag(ctx, on, s.To.target())
	case "type":
		return b.TypeInto(ctx, on, s.Text)
	case "clear":
		return b.Clear(ctx, on)
	case "scroll":
		if s.X == 0 && s.Y == 0 {
			return b.ScrollTo(ctx, on)
		}
		if on.Selector == "" {
			on = page.Target{By: page.ByXPath, Selector: "/html"}
		}
		return b.ScrollBy(ctx, on, s.X, s.Y)
	case "wait":
		return wait(ctx, time.Duration(s.Seconds*float64(time.Second)))
	case "script":
		var args []page.Target
		for _, e := range s.On {
			args = append(args, e.target())
		}
		return b.Run(ctx, s.Script, args...)
	}
	return fmt.Errorf("%w: %q", errStep, s.Do)
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
