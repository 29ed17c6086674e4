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
    pull = "never"
    mount {
      source = "/a"
      target = "/a"
    }
    mount {
      source = "relative"
      target = "/b"
    }
    server "one" {
      command = "c"
      args    = [
        "first",
        "second",
      ]
    }
    labels = {
      good = "x"
      bad  = "y"
    }
  }
}

agent "a" {
  plugin = "loop"
}
