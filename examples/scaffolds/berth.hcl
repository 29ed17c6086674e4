# One task, and agents that differ by one word: a loop on the host and three
# programs that run inside the sandbox. The model answers from a file: no key, no
# network, no engine.
experiment "scaffolds" {
  datasets    = [dataset.samples]
  environment = environment.local

  matrix {
    plugin = ["terminus", "claude-code", "codex", "pi"]
  }

  agent = agent.scaffold
  model = model.scripted
}

dataset "samples" {
  format = "harbor"
  path   = "./tasks"
}

environment "local" {
  plugin = "local"
}

agent "scaffold" {
  plugin = matrix.plugin
}

model "scripted" {
  provider = "script"
  script   = "./replies.yaml"
}
