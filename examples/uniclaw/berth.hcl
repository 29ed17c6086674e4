# Tasks in the layout of UniClawBench, with our own content: a supervisor who knows
# the rubric, a simulated user who does not, and two agents without a model.
experiment "uniclaw" {
  datasets    = [dataset.samples]
  environment = environment.local

  matrix {
    agent = [agent.oracle, agent.nop]
  }
}

# The published tasks are read the same way, without solutions.
dataset "samples" {
  format = "uniclaw"
  path   = "."

  config {
    solutions = "solutions"
  }
}

environment "local" {
  plugin = "local"
}

# The same in containers: write environment.podman or environment.docker above, and
# image = "debian:bookworm-slim" beside solutions.
environment "podman" {
  plugin = "podman"
}

environment "docker" {
  plugin = "docker"
}

# Runs the solution of the task, which shows that the task can be passed.
agent "oracle" {
  plugin = "oracle"
  oracle = true
}

# Does nothing, which shows that the task is not passed by doing nothing.
agent "nop" {
  plugin = "nop"
}

verifier "supervisor" {
  model = model.supervisor
}

user {
  agent = agent.persona
  model = model.user
}

agent "persona" {
  plugin = "persona"
}

# Models that reply from files: no key, no network.
model "supervisor" {
  provider = "script"
  script   = "./supervisor.yaml"
}

model "user" {
  provider = "script"
  script   = "./user.yaml"
}
