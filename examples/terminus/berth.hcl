# The agent terminus on three tasks that need a terminal, with a model that
# answers from a file: no key, no network, no engine.
experiment "terminus" {
  datasets    = [dataset.samples]
  environment = environment.local

  matrix {
    agent = [agent.terminus]
    model = [model.scripted]
  }
}

dataset "samples" {
  format = "harbor"
  path   = "./tasks"
}

environment "local" {
  plugin = "local"
}

agent "terminus" {
  plugin = "terminus"
  config {
    max_turns = 50
  }
}

model "scripted" {
  provider = "script"
  script   = "./replies.yaml"
}
