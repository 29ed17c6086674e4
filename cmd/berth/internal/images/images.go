// Package images prepares the images of a plan before its run, and removes images
// that no run needs any more.
package images

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/experiment"
	"github.com/berth-eval/berth/core/plan"
	"github.com/berth-eval/berth/core/plugin"
	"github.com/berth-eval/berth/core/trial"
	"github.com/berth-eval/berth/core/trial/feasible"
	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/task"
)

// pick returns the images that are not in use and were not used within that time, most
// recently used first. One whose time of use is not known is kept, unless within is 0.
func pick(all []environment.KeptImage, within time.Duration, now time.Time) []environment.KeptImage {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b environment.KeptImage) int { return b.Used.Compare(a.Used) })
	return slices.DeleteFunc(all, func(im environment.KeptImage) bool {
		return im.InUse || within > 0 && (im.Used.IsZero() || now.Sub(im.Used) <= within)
	})
}

// imagesTimeout bounds one answer of an environment about its images.
const imagesTimeout = 2 * time.Minute

// Pruned is the result of Prune, or of its dry run.
type Pruned struct {
	Removed  []output.GCImage
	Kept     int // images of all environments that stay
	Problems []string
}

// Prune removes the images that were not used within that time, in every environment
// that keeps images; dry only lists them. Do not call it while an attempt runs:
// the next trial may start from an image that the previous one no longer needs.
func Prune(ctx context.Context, h *plugin.Host, within time.Duration, dry bool) (*Pruned, error) {
	res := &Pruned{}
	p := &pruning{within, dry, res}
	entries, err := h.List(ctx)
	if err != nil {
		return nil, err
	}
	for i := range entries {
		e := &entries[i]
		if e.Kind != plugins.KindEnvironment || e.ShadowedBy != "" || e.Error != "" || !slices.Contains(e.Capabilities, environment.CapabilityImageGC) {
			continue
		}
		env, _, err := h.Environment(ctx, e.Name)
		if err == nil {
			err = p.of(ctx, e.Name, env)
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err != nil {
			res.Problems = append(res.Problems, fmt.Sprintf("environment %s: %v", e.Name, err))
		}
	}
	return res, nil
}

// pruning is the state of one call of Prune.
type pruning struct {
	within time.Duration
	dry    bool
	res    *Pruned
}

// of does the work of Prune for one environment.
func (p *pruning) of(ctx context.Context, name string, env environment.Environment) error {
	k, ok := env.(environment.Keeper)
	if !ok {
		return fmt.Errorf("it announces %s and has no images", environment.CapabilityImageGC)
	}
	asked, cancel := context.WithTimeout(ctx, imagesTimeout)
	defer cancel()
	all, err := k.Kept(asked)
	if err != nil {
		return fmt.Errorf("list images: %w", err)
	}
	gone := pick(all, p.within, time.Now())
	kept := len(all)
	for _, im := range gone {
		done := p.dry
		if !p.dry {
			if done, err = drop(ctx, k, im.Ref); err != nil {
				p.res.Problems = append(p.res.Problems, fmt.Sprintf("environment %s: image %s: %v", name, im.Ref, err))
			}
		}
		if done {
			kept--
			p.res.Removed = append(p.res.Removed, output.GCImage{Environment: name, Ref: im.Ref, SizeMiB: im.SizeMiB, Used: im.Used})
		}
	}
	p.res.Kept += kept
	return nil
}

func drop(ctx context.Context, k environment.Keeper, ref string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, imagesTimeout)
	defer cancel()
	return k.Drop(ctx, ref)
}

// imagesInFlight is how many images are prepared at a time; registries limit
// the rate of requests.
const imagesInFlight = 3

// imageJob is one image of one environment.
type imageJob struct {
	environment string
	image       environment.Image
	config      json.RawMessage
	made        output.Prepared
}

// Prepare pulls and builds the images that the trials of a plan start
// from. It calls say, which must be safe for concurrent use, with the lines of
// pulls and builds. Images that are not available have an Error in the answer;
// an error means that ctx ended, or that a task cannot be asked for its images.
func Prepare(ctx context.Context, p *plan.Plan, plugins trial.Plugins, say func(image, line string)) ([]output.Prepared, error) {
	jobs, err := imagesOf(p)
	if err != nil {
		return nil, err
	}
	work, each := errgroup.WithContext(ctx)
	work.SetLimit(imagesInFlight)
	for i := range jobs {
		work.Go(func() error {
			j := &jobs[i]
			if wrong := j.prepare(each, plugins, say); wrong != nil {
				j.made.Error = wrong.Error()
			}
			return context.Cause(each)
		})
	}
	if err = work.Wait(); err != nil {
		return nil, err
	}
	images := make([]output.Prepared, len(jobs))
	for i := range jobs {
		images[i] = jobs[i].made
	}
	return images, nil
}

// imagesOf returns the images of a plan, without duplicates per environment and
// configuration.
func imagesOf(p *plan.Plan) ([]imageJob, error) {
	var jobs []imageJob
	seen := map[string]int{}
	for i := range p.Trials {
		t := &p.Trials[i]
		if t.Invalid != "" || t.Refused != "" || p.Tasks[t.Place].Task == nil {
			continue
		}
		c := p.Experiment.Cells[t.Cell]
		d := slices.IndexFunc(c.Datasets, func(d experiment.Dataset) bool { return d.Label == p.Tasks[t.Place].Dataset })
		if d < 0 {
			continue
		}
		cell := c.On(&c.Datasets[d]) // no image depends on a secret
		images, err := taskImages(p.Tasks[t.Place].Task, cell)
		if err != nil {
			return nil, fmt.Errorf("task %s: %w", t.Task, err)
		}
		block := cell.Environment.Config.JSON()
		for _, im := range images {
			key, err := json.Marshal([]any{cell.Environment.Plugin, block, im})
			if err != nil {
				return nil, err
			}
			at, ok := seen[string(key)]
			if !ok {
				at = len(jobs)
				seen[string(key)] = at
				jobs = append(jobs, imageJob{environment: cell.Environment.Plugin, image: im, config: block, made: output.Prepared{
					Environment: cell.Environment.Plugin, Ref: im.Ref, Build: im.Build,
				}})
			}
			if im := &jobs[at].made; !slices.Contains(im.Tasks, t.Task) {
				im.Tasks = append(im.Tasks, t.Task)
			}
		}
	}
	return jobs, nil
}

// taskImages returns the images of the sandboxes of a task.
func taskImages(t *task.Task, c cell.Cell) ([]environment.Image, error) {
	spec, _, err := feasible.Spec(t, c, agent.Needs{})
	if err != nil {
		return nil, err
	}
	specs, err := feasible.VerifierSpecs(t, c, nil)
	var images []environment.Image
	for _, spec := range append([]environment.Spec{spec}, specs...) {
		images = append(images, spec.Image)
		for _, s := range spec.Sidecars {
			images = append(images, s.Image)
		}
	}
	return images, err
}

func (j *imageJob) prepare(ctx context.Context, plugins trial.Plugins, say func(image, line string)) error {
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
	j.made.Ref, j.made.Digest = made.Ref, made.Digest
	return err
}
