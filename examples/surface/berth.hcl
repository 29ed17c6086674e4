experiment "tictactoe" {
  datasets    = [dataset.games]
  environment = environment.table
  matrix {
    agent = [agent.oracle, agent.nop]
  }
}

dataset "games" {
  format = "harbor"
  path   = "./tasks"
}

environment "table" {
  plugin  = "local"
  surface = "tictactoe" # opened on the sandboxes of local
}

agent "oracle" {
  plugin = "oracle"
  oracle = true
}

agent "nop" {
  plugin = "nop"
}
