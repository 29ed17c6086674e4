// Package prepare fetches and builds the images of a plan ahead of its run, each
// once, so that the run starts from what is there.
//
// It must not start a sandbox, and keeps nothing: what was made is the
// environments' own.
package prepare

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/config"
	"github.com/berth-eval/berth/core/plan"
	"github.com/berth-eval/berth/core/trial"
	"github.com/berth-eval/berth/core/trial/fit"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/environment"
)

// inFlight is how many images are prepared at a time: registries count requests.
const inFlight = 3

// job is one image of one environment.
type job struct {
	environment string
	image       environment.Image
	config      json.RawMessage
	answer      output.Prepared
}

// Images prepares what the trials of a plan start from. say, safe for concurrent
// use, gets the lines of pulls and builds. What cannot be had is in the answer;
// an error means that ctx ended, or that a task cannot be asked for.
func Images(ctx context.Context, p *plan.Plan, plugins trial.Plugins, say func(image, line string)) (*output.Prepare, error) {
	jobs, err := wanted(p)
	if err != nil {
		return nil, err
	}
	work, each := errgroup.WithContext(ctx)
	work.SetLimit(inFlight)
	for i := range jobs {
		work.Go(func() error {
			j := &jobs[i]
			if wrong := j.prepare(each, plugins, say); wrong != nil {
				j.answer.Error = wrong.Error()
			}
			return context.Cause(each)
		})
	}
	if err = work.Wait(); err != nil {
		return nil, err
	}
	res := &output.Prepare{Images: make([]output.Prepared, len(jobs))}
	for i := range jobs {
		res.Images[i] = jobs[i].answer
	}
	return res, nil
}

// wanted are the images of a plan, each once an environment and configuration.
func wanted(p *plan.Plan) ([]job, error) {
	var jobs []job
	seen := map[string]int{}
	for i := range p.Trials {
		t := &p.Trials[i]
		if t.Invalid != "" || t.Refused != "" || p.Tasks[t.Place].Task == nil {
			continue
		}
		c := p.Experiment.Cells[t.Cell]
		d := slices.IndexFunc(c.Datasets, func(d config.Dataset) bool { return d.Label == p.Tasks[t.Place].Dataset })
		if d < 0 {
			continue
		}
		cell := plan.Public(c, &c.Datasets[d]) // no image depends on a secret
		spec, _, err := fit.Spec(p.Tasks[t.Place].Task, cell, agent.Needs{})
		if err != nil {
			return nil, fmt.Errorf("task %s: %w", t.Task, err)
		}
		images := []environment.Image{spec.Image}
		for _, s := range spec.Sidecars {
			images = append(images, s.Image)
		}
		for _, im := range images {
			key, err := json.Marshal([]any{cell.Environment.Plugin, spec.Config, im})
			if err != nil {
				return nil, err
			}
			at, ok := seen[string(key)]
			if !ok {
				at = len(jobs)
				seen[string(key)] = at
				jobs = append(jobs, job{environment: cell.Environment.Plugin, image: im, config: spec.Config, answer: output.Prepared{
					Environment: cell.Environment.Plugin, Ref: im.Ref, Build: im.Build,
				}})
			}
			if a := &jobs[at].answer; !slices.Contains(a.Tasks, t.Task) {
				a.Tasks = append(a.Tasks, t.Task)
			}
		}
	}
	return jobs, nil
}

func (j *job) prepare(ctx context.Context, plugins trial.Plugins, say func(image, line string)) error {
	env, _, err := plugins.Environment(ctx, j.environment)
	if err != nil {
		return err
	}
	p, ok := env.(environment.Preparer)
	if !ok {
		return nil // it has no images
	}
	name := j.image.Ref
	if name == "" {
		name = j.image.Build
	}
	made, err := p.Prepare(ctx, j.image, j.config, func(line string) { say(name, line) })
	if errors.Is(err, environment.ErrUnsupported) {
		return nil
	}
	j.answer.Ref, j.answer.Digest = made.Ref, made.Digest
	return err
}
