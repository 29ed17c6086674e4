experiment "webui" {
  datasets    = [dataset.pages]
  environment = environment.here
  matrix {
    agent = [agent.oracle, agent.nop]
  }
}

dataset "pages" {
  format = "webui"
  path   = "./tasks"
}

environment "here" {
  plugin  = "local"
  surface = "webui" # opened on the sandboxes of local
}

agent "oracle" {
  plugin = "oracle"
  oracle = true
}

agent "nop" {
  plugin = "nop"
}
