package harborjob

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
)

// key tells the trials of a job apart: its task, its agent and the agent's model. Trials
// with the same key are repetitions, or differ in the options of their agent.
func (c *rawConfig) key(name, model string) [3]string {
	return [3]string{cmp.Or(c.Task.Path, c.Task.Name), name, model}
}

// planned returns what a job will run, from its lock file or, if that does not exist,
// from its configuration. Nil: not known.
func planned(job string) []rawConfig {
	var lock struct {
		Trials []rawConfig `json:"trials"`
	}
	if readJSON(job, lockFile, &lock) == nil && len(lock.Trials) > 0 {
		return lock.Trials[:min(len(lock.Trials), maxTrials)]
	}
	var config struct {
		Attempts int                          `json:"n_attempts"`
		Agents   []map[string]json.RawMessage `json:"agents"`
		Tasks    []rawTask                    `json:"tasks"`
	}
	var result jobResult
	if readJSON(job, configFile, &config) != nil || readJSON(job, resultFile, &result) != nil {
		return nil
	}
	times := max(1, config.Attempts)
	if each := len(config.Tasks) * len(config.Agents); each == 0 || result.Total > maxTrials || result.Total != each*times {
		return nil // it has datasets, whose tasks are not in its files
	}
	var all []rawConfig
	for _, t := range config.Tasks {
		for _, a := range config.Agents {
			for range times {
				all = append(all, rawConfig{Task: t, Agent: a})
			}
		}
	}
	return all
}

// pending returns the trials of a job that have no folder yet.
func pending(job string, begun []imported) (all []imported) {
	of := map[[3]string][]*imported{}
	tasks := map[string]string{} // the name of a task, by its path
	for i := range begun {
		t := &begun[i]
		of[t.key] = append(of[t.key], t)
		tasks[t.key[0]] = t.task
	}
	seen, left := map[[3]string]int{}, map[string]int{}
	for _, c := range planned(job) {
		key := c.key(c.agent(nil))
		if seen[key]++; seen[key] <= len(of[key]) {
			continue
		}
		t := imported{
			key: key, task: cmp.Or(tasks[key[0]], c.taskName(nil)), dataset: c.dataset(nil), agent: key[1], model: key[2], environment: c.Environment.Type,
			settings: c.settings(key[1], key[2]),
		}
		if d := c.Task.Digest; d != "" {
			t.digest = "sha256:" + strings.TrimPrefix(d, "sha256:")
		}
		if t.task == "" {
			continue
		}
		alike(&t, begun, left)
		all = append(all, t)
	}
	return all
}

// alike gives a trial the options, the environment and the label of the dataset that
// trials of the same agent have which began. If there are several options, it gets
// those that the task has the fewest trials with.
func alike(t *imported, begun []imported, left map[string]int) {
	count := func(b *imported) string { return fmt.Sprint(t.key, "\x00", b.settings) }
	var best *imported
	trials := map[string]int{}
	for i := range begun {
		if b := &begun[i]; b.key == t.key {
			trials[count(b)]++
		}
	}
	for i := range begun {
		b := &begun[i]
		if b.agent != t.agent || b.model != t.model {
			continue
		}
		if best == nil || trials[count(b)]+left[count(b)] < trials[count(best)]+left[count(best)] {
			best = b
		}
	}
	if best == nil {
		return
	}
	left[count(best)]++
	t.settings, t.environment = best.settings, best.environment
	for i := range begun {
		if b := &begun[i]; b.key[0] == t.key[0] {
			t.dataset, t.digest = b.dataset, cmp.Or(b.digest, t.digest)
		}
	}
}
