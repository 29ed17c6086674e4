# A page is rebuilt by two planners, with a model that replies from a file, and with one
# that talks nonsense.
experiment "planners" {
  datasets    = [dataset.pages]
  environment = environment.here

  matrix {
    agent = [agent.global, agent.online]
    model = [model.player, model.nonsense]
  }
}

dataset "pages" {
  format  = "webui"
  path    = "../tasks"
  include = ["prices"]
}

environment "here" {
  plugin  = "local"
  surface = "webui"

  surface_config {
    settle = "50ms"
  }
}

# Writes all files in one reply.
agent "global" {
  plugin = "planner"

  config {
    mode   = "global"
    format = "blocks"
  }
}

# Sees the page after each reply.
agent "online" {
  plugin = "planner"

  config {
    format   = "blocks"
    am       = 4 # replies that it remembers
    om       = 2 # of these, how many are shown with the pictures of the page
    max_loop = 6
  }
}

model "player" {
  provider = "script"
  script   = "./player.yaml"
}

model "nonsense" {
  provider = "script"
  script   = "./nonsense.yaml"
}
