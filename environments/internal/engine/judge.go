package engine

import (
	"context"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/berth-eval/berth/environments/internal/judge"
	"github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/environment"
)

// judgement is the result of checking a Spec for an engine.
type judgement struct {
	judge.Judgement

	config    Config
	remote    *remote
	facts     Facts
	container Container   // without name, image, labels
	sidecars  []Container // as container, in the order of the spec
}

// Check reports why Create would refuse spec.
func (e *Environment) Check(ctx context.Context, spec environment.Spec) (environment.Report, error) {
	j, err := e.judge(ctx, spec)
	if err != nil {
		return environment.Report{}, err
	}
	j.Report.Machine = e.checks()
	return j.Report, nil
}

// judge checks spec. An error means that the check itself failed.
func (e *Environment) judge(ctx context.Context, spec environment.Spec) (*judgement, error) {
	j := &judgement{}
	if err := config.Decode(spec.Config, &j.config); err != nil {
		return nil, fmt.Errorf("configuration of environment %q: %w", e.o.Name, err)
	}
	for _, p := range j.config.Validate() {
		j.Refuse(fmt.Sprintf("%s: %s", p.Path, p.Summary), p.Detail)
	}
	if len(j.Report.Refusals) > 0 {
		return j, nil
	}
	err := usable()
	if err != nil {
		j.Refuse(fmt.Sprintf("Environment %q has no folder for its locks", e.o.Name), err.Error())
		return j, nil
	}
	if j.remote, err = e.at(j.config); err != nil {
		j.Refuse(fmt.Sprintf("Environment %q found no engine", e.o.Name), err.Error())
		return j, nil
	}
	if j.facts, err = j.remote.Facts(ctx); err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		j.Refuse(fmt.Sprintf("The engine of environment %q does not answer", e.o.Name), e.o.Help(j.remote.address, err))
		return j, nil
	}
	j.Report.Degraded = append(j.Report.Degraded, j.facts.Degraded...)
	j.Report.About = j.facts.About + " at " + j.remote.address
	j.container.NoSELinux = j.facts.SELinux
	j.judgeImage(spec)
	j.judgeLimits(spec.Limits)
	j.Network(spec.Network.Mode, j.facts.NoPublic)
	j.container.Public = spec.Network.Mode == environment.NetworkPublic
	j.judgePlaces(spec)
	j.judgeUsers(spec)
	j.judgeSidecars(spec)
	return j, nil
}

func (j *judgement) judgeImage(spec environment.Spec) {
	switch im := spec.Image; {
	case im.Ref != "" && im.Build != "":
		j.Refuse("The task names an image and a folder to build", fmt.Sprintf("Got %q and %q: keep one of them.", im.Ref, im.Build))
	case im.Build != "":
		_, added := im.Files[fileOf(im)]
		if info, err := os.Stat(path.Join(im.Build, fileOf(im))); !added && (err != nil || !info.Mode().IsRegular()) {
			j.Refuse("The task's Dockerfile is not there", fmt.Sprintf("There is no file %q in %q.", fileOf(im), im.Build))
		} else if why := j.remote.CannotBuild(wantsOf(im)); why != "" {
			j.Refuse("The engine cannot build the task's Dockerfile", why)
		}
	default:
		if _, file, ok := archive(j.from(im)); ok {
			j.judgeArchive(file)
		}
	}
}

// judgeArchive refuses an archive that this machine cannot read.
func (j *judgement) judgeArchive(file string) {
	const all = "Every machine that makes attempts needs it at that path."
	if info, err := os.Stat(file); err != nil || !info.Mode().IsRegular() {
		j.Refuse("The archive of the image is not there", fmt.Sprintf("There is no file %q on this machine. %s", file, all))
		return
	}
	f, err := os.Open(file)
	if err != nil {
		j.Refuse("The archive of the image cannot be read", fmt.Sprintf("On this machine: %v. %s", err, all))
		return
	}
	_ = f.Close()
}

// notKept ends the message about a limit that is not enforced.
const notKept = "Attempts run without this limit, but with their deadlines. `berth doctor` tells more about the engine."

// RoughPids is the summary of what Check says where the engine has no control
// group to limit processes with.
const RoughPids = "The limit on processes is only approximate"

// judgeLimits decides how each limit is enforced.
func (j *judgement) judgeLimits(l environment.Limits) {
	f, c := j.facts, &j.container
	how := []string{f.How}
	if !f.Memory {
		how = append(how, "so OOM kills, peak memory and CPU time are unknown")
	}
	keep := func(what string, asked int64, kept bool, into *environment.Grant) int64 {
		switch {
		case asked < 0:
			j.Refuse("A limit is negative", fmt.Sprintf("%s is %d: write 0 for none, or a positive number.", what, asked))
		case asked == 0:
		case kept:
			*into = environment.GrantEnforced
			return asked
		default:
			*into = environment.GrantNo
			j.Degrade(fmt.Sprintf("The limit on %s is not enforced", what), "The engine cannot enforce it on this machine. "+notKept)
		}
		return 0
	}
	c.Limits.CPUMilli = keep("processors", l.CPUMilli, f.CPU, &j.Granted.CPU)
	c.Limits.MemoryMiB = keep("memory", l.MemoryMiB, f.Memory, &j.Granted.Memory)
	c.Limits.StorageMiB = keep("storage", l.StorageMiB, f.Disk, &j.Granted.Disk)
	c.Limits.ShmMiB = keep("shared memory", l.ShmMiB, true, new(environment.Grant))
	c.Limits.Pids = max(l.Pids, 0)
	if l.Pids == 0 {
		c.Limits.Pids = j.config.Pids
	}
	if f.Pids {
		keep("processes", l.Pids, true, &j.Granted.Pids)
	} else {
		// RLIMIT_NPROC counts all processes of this user id in all its
		// sandboxes: a smaller number would make other sandboxes fail.
		c.Nproc, c.Limits.Pids = max(c.Limits.Pids, 4096), 0
		how = append(how, fmt.Sprintf("RLIMIT_NPROC of %d, which all sandboxes of this user share", c.Nproc))
		if l.Pids > 0 {
			j.Granted.Pids = environment.GrantBestEffort
			j.Degrade(RoughPids, fmt.Sprintf("The engine has no control group for it here: RLIMIT_NPROC is %d instead, for all sandboxes of this user.", c.Nproc))
		}
	}
	if l.GPUs > 0 {
		j.judgeGPUs(l)
	}
	j.Granted.How = strings.Join(slices.DeleteFunc(how, func(s string) bool { return s == "" }), ", ")
}

// gpusHere says which GPUs the engine of the environment name offers, as the
// remedy of a refusal.
func gpusHere(name string, have []string) string {
	if len(have) == 0 {
		return fmt.Sprintf("Environment %q offers none here.", name)
	}
	return fmt.Sprintf("Environment %q offers %d here (%s) and may give any of them: run on a machine where all of them fit.", name, len(have), strings.Join(have, ", "))
}

func (j *judgement) judgeGPUs(l environment.Limits) {
	fits := int64(0)
	for _, have := range j.facts.GPUs {
		if len(l.GPUTypes) == 0 || slices.ContainsFunc(l.GPUTypes, func(t string) bool { return strings.Contains(strings.ToLower(have), strings.ToLower(t)) }) {
			fits++
		}
	}
	if fits < l.GPUs || len(l.GPUTypes) > 0 && fits < int64(len(j.facts.GPUs)) {
		j.Granted.GPU = environment.GrantNo
		wanted := fmt.Sprintf("The task needs %d GPU", l.GPUs)
		if l.GPUs > 1 {
			wanted += "s"
		}
		if len(l.GPUTypes) > 0 {
			wanted += " of type " + strings.Join(l.GPUTypes, " or ")
		}
		j.Refuse(wanted, gpusHere(j.remote.name, j.facts.GPUs))
		return
	}
	j.Granted.GPU = environment.GrantEnforced
	j.container.Limits.GPUs = l.GPUs
}

// judgePlaces checks the paths inside.
func (j *judgement) judgePlaces(spec environment.Spec) {
	j.Workdir(spec.Workdir)
	mounts := slices.Clone(spec.Mounts)
	for _, m := range j.config.Mounts {
		mounts = append(mounts, environment.Mount(m))
	}
	j.Mounts(mounts)
	for _, m := range mounts {
		if _, err := os.Stat(m.Source); err != nil {
			j.Refuse("A folder to mount is not there", fmt.Sprintf("%s: %v.", m.Source, err))
		}
	}
	j.container.Mounts = mounts
}

// judgeUsers refuses users other than root if there is only one id.
func (j *judgement) judgeUsers(spec environment.Spec) {
	if !j.facts.OneID {
		return
	}
	for _, u := range spec.Users {
		name, _, _ := strings.Cut(u, ":")
		if name != "" && name != "root" && name != "0" {
			j.Refuse(fmt.Sprintf("The task needs a second user, %q", name), "The engine's containers have one user id here, root: an administrator can give "+
				"this user a range of ids (usermod --add-subuids 100000-165535 --add-subgids 100000-165535 USER, then podman system migrate) and install newuidmap.")
		}
	}
}
