# Claude Code on a folder of tasks, in rootless Podman. README.md has the commands.
variable "tasks" {
  type        = string
  default     = "../quickstart/tasks"
  description = "Folder of tasks in the harbor format."
}

experiment "claude-code" {
  datasets    = [dataset.tasks]
  environment = environment.podman
  agent       = agent.claude
  model       = model.opus

  per_trial {
    cost_usd = 2 # the most that one attempt can cost
  }
}

dataset "tasks" {
  format = "harbor"
  path   = var.tasks
}

environment "podman" {
  plugin = "podman"
}

agent "claude" {
  plugin = "claude-code"
}

model "opus" {
  provider = "anthropic"
  name     = "claude-opus-4-8"
  api_key  = secret("ANTHROPIC_API_KEY")
}
