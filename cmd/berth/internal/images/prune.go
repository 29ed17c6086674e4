// Package images prepares the images of a plan before its run, and removes images
// that no run needs any more.
package images

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/plugin"
	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/environment"
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
