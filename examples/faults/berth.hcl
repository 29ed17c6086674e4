# Tasks that go wrong on purpose. None of them is to be passed by accident;
# README.md says what each comes to. Not part of `make run`.
experiment "faults" {
  datasets    = [dataset.faults]
  environment = environment.local

  matrix {
    agent = [agent.oracle]
  }
}

dataset "faults" {
  format = "harbor"
  path   = "./tasks"
}

environment "local" {
  plugin = "local"
}

agent "oracle" {
  plugin = "oracle"
  oracle = true
}
