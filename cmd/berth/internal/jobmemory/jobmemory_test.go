package jobmemory

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// kernel writes files as the kernel shows them. AT in them is the folder.
func kernel(t *testing.T, files map[string]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(strings.ReplaceAll(text, "AT", dir)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// The texts are those of Linux 6.1 in jobs of Slurm, except for the numbers.
const (
	mounts1 = `31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
33 31 0:29 / AT/other rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / AT/memory rw,relatime shared:12 - cgroup cgroup rw,memory
41 31 0:38 / AT/unified rw,relatime - cgroup2 cgroup2 rw
`
	mounts2 = "31 23 0:28 / AT/unified rw,nosuid,nodev,noexec,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot\n"
	local2  = "low 0\nhigh 0\nmax 210\noom 0\noom_kill 0\noom_group_kill 0\n"
	limit1  = "9223372036854771712\n" // none
)

func TestTheKillsInAJobAreRead(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		files map[string]string
		kills int64
	}{
		{"version 1", map[string]string{
			"cgroup": "11:cpu,cpuacct:/x\n4:memory:/slurm/uid_1000/job_7/step_batch\n1:name=systemd:/\n0::/\n", "mountinfo": mounts1,
			"memory/slurm/uid_1000/job_7/step_batch/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
			"memory/slurm/uid_1000/job_7/memory.oom_control":            "oom_kill_disable 0\nunder_oom 0\noom_kill 9\n", // other steps
		}, 3},
		{"version 1 in a container", map[string]string{
			"cgroup": "4:memory:/docker/0a\n", "mountinfo": strings.ReplaceAll(mounts1, "0:32 / ", "0:32 /docker/0a "),
			"memory/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
		}, 1},
		{"version 2", map[string]string{
			"cgroup": "0::/system.slice/slurmstepd.scope/job_7/step_batch/user/task_0\n", "mountinfo": mounts2,
			"unified/system.slice/slurmstepd.scope/job_7/step_batch/user/task_0/memory.events.local": strings.Replace(local2, "oom_kill 0", "oom_kill 2", 1),
			// What sandboxes below have met themselves does not count.
			"unified/system.slice/slurmstepd.scope/job_7/step_batch/user/task_0/memory.events": "low 0\nhigh 0\nmax 900\noom 70\noom_kill 70\noom_group_kill 0\n",
		}, 2},
		{"version 2 of another namespace", map[string]string{"cgroup": "0::/../other\n", "mountinfo": mounts2, "unified/memory.events.local": "oom_kill 1\n"}, 0},
		{"a group with a similar name is mounted", map[string]string{
			"cgroup": "0::/jobs/1\n", "mountinfo": strings.ReplaceAll(mounts2, "0:28 / ", "0:28 /job "), "unified/s/1/memory.events.local": "oom_kill 1\n",
		}, 0},
		{"nothing readable", map[string]string{"cgroup": "::\n4:memory\nx", "mountinfo": "- - -\n\n - cgroup2\n"}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if k := find(kernel(t, tt.files)).Kills(); k != tt.kills {
				t.Errorf("%d, want %d", k, tt.kills)
			}
		})
	}
}

// What is left is the least of all groups; files that nobody uses are free.
func TestWhatAJobHasLeftIsRead(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		files   map[string]string
		left    int64
		limited bool
	}{
		{"version 1", map[string]string{
			"cgroup": "4:memory:/job/step\n", "mountinfo": mounts1,
			"memory/job/step/memory.limit_in_bytes": limit1, "memory/job/step/memory.usage_in_bytes": "1048576\n",
			"memory/job/memory.limit_in_bytes": "1073741824\n", "memory/job/memory.usage_in_bytes": "536870912\n",
			"memory/job/memory.stat":       "cache 268435456\ninactive_file 4096\ntotal_inactive_file 268435456\n",
			"memory/memory.limit_in_bytes": limit1,
		}, 768, true},
		{"version 2", map[string]string{
			"cgroup": "0::/job/step\n", "mountinfo": mounts2,
			"unified/job/step/memory.max": "max\n", "unified/job/step/memory.current": "1048576\n",
			"unified/job/memory.max": "1073741824\n", "unified/job/memory.current": "536870912\n",
			"unified/job/memory.stat": "anon 1\ninactive_file 268435456\n",
		}, 768, true},
		{"more is used than allowed", map[string]string{
			"cgroup": "0::/job\n", "mountinfo": mounts2, "unified/job/memory.max": "1048576\n", "unified/job/memory.current": "2097152\n",
		}, 0, true},
		{"no limit", map[string]string{
			"cgroup": "4:memory:/job\n", "mountinfo": mounts1, "memory/job/memory.limit_in_bytes": limit1, "memory/job/memory.usage_in_bytes": "1048576\n",
		}, 0, false},
		{"no groups", map[string]string{"cgroup": ""}, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			left, limited := find(kernel(t, tt.files)).FreeMiB()
			if limited != tt.limited || limited && left != tt.left {
				t.Errorf("%d MiB, %v; want %d, %v", left, limited, tt.left, tt.limited)
			}
		})
	}
}
