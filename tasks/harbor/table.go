package harbor

import (
	"math"

	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/tasks/internal/document"
)

// homes are the tables of keys that are often written in a wrong one.
var homes = map[string]string{
	"timeout_sec": "[agent] or [verifier]", "user": "[agent] or [verifier]", "env": "[environment], [verifier] or [solution]",
	"docker_image": "[environment]", "cpus": "[environment]", "memory_mb": "[environment]", "storage_mb": "[environment]",
	"gpus": "[environment]", "workdir": "[environment]", "build_timeout_sec": "[environment]", "allow_internet": "[environment]",
	"network_mode": "[environment], [agent] or [verifier]", "allowed_hosts": "[environment], [agent] or [verifier]",
	"healthcheck": "[environment] or [[steps]]", "mcp_servers": "[environment]", "skills_dir": "[environment]",
	"collect": "[verifier]", "environment_mode": "[verifier]", "min_reward": "[[steps]]",
	"multi_step_reward_strategy": "the top of the file", "artifacts": "the top of the file or [[steps]]",
	"name": "[task]", "description": "[task]", "authors": "[task]", "keywords": "[task]",
	"difficulty": "[metadata]", "category": "[metadata]", "tags": "[metadata]", "author_name": "[metadata]", "author_email": "[metadata]",
}

// seconds returns a time. Absent is def; zero is taken as absent.
func seconds(t *document.Table, key string, def task.Duration) task.Duration {
	f, ok := t.Float(key)
	switch {
	case !ok:
		return def
	case f < 0 || f > math.MaxInt64/1e10:
		t.Bad(key, "Time out of range", "%s is %v seconds.", t.At(key), f)
		return def
	case f == 0:
		t.R.Warn(t.At(key), "Time of zero", "%s is 0, taken as if it were not written.", t.At(key))
		return def
	}
	return task.Seconds(f)
}
