experiment "x" {
  datasets    = [dataset.t]
  environment = environment.box
  agent       = agent.a
}

dataset "t" {
  format = "harbor"
  path   = "tasks"
}

environment "box" {
  plugin = "box"
  config {
    sokcet = "x"
    pull   = "sometimes"
    mount {
      source = "/a"
    }
    mount {
      target = 1
    }
    mont {
    }
    proxy {
    }
    proxy {
    }
    server "one" {
    }
    server "one" {
      command = "c"
    }
    server {
      command = "c"
    }
  }
}

environment "other" {
  plugin = "bxo"
  config {
    anything = 1
  }
}

agent "a" {
  plugin = "loop"
  config {
    turns   = "many"
    timeout = "soon"
    words   = ["a", ["b"]]
    token   = "canary-in-plain-text"
  }
}

agent "needy" {
  plugin = "needy"
}

verifier "judge" {
  plugin = "loop"
}

verifier "strict" {
  config {
    level = 12
  }
}
