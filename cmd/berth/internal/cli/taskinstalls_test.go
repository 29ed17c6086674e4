package cli

import "testing"

// The beginnings of tests of published tasks.
func TestTestsThatInstallPrograms(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]bool{
		"apt-get update": true, "  apt-get -y install curl": true, "apt install -y git": true, "sudo apk add git": true,
		"curl -LsSf https://astral.sh/uv/0.7.13/install.sh | sh": true, "curl -fsSL https://x.org/a | bash": true, "curl -o out.json http://localhost/": false,
		"uvx \\": true, "uvx -p 3.13 -w pytest==8.4.1 pytest /tests/test_outputs.py": true, "uv init": true, "pip install pytest==8.4.1": true, "python -m pip install numpy": true,
		"npm ci": true, "npx jest": true, "npm test": false, "pytest /tests -rA": false, "# apt-get update": false, "echo pip install": false, "uvicorn app:app &": false,
	} {
		if got := install.MatchString(line); got != want {
			t.Errorf("%q installs programs: %t", line, got)
		}
	}
}
