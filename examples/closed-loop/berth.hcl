# An agent, a verifier that judges each turn, and a simulated user who asks for
# more. README.md says how the two example plugins are built.
experiment "closed-loop" {
  datasets    = [dataset.samples]
  environment = environment.local
  agent       = agent.worker
  model       = model.worker
}

dataset "samples" {
  format = "harbor"
  path   = "./tasks"

  success {
    key      = "quality"
    at_least = 0.9
  }
}

environment "local" {
  plugin = "local"
}

agent "worker" {
  plugin = "minisweagent"
}

# Judges a copy of the work after each turn. It alone knows the rubric.
verifier "reviewer" {
  model    = model.reviewer
  cost_usd = 0.5
}

# Writes the follow-up messages. It sees what is public, and no score.
agent "customer" {
  plugin = "customer"
}

user {
  agent    = agent.customer
  model    = model.customer
  cost_usd = 0.5
}

# Models that reply from files: no key, no network. The prices are made up.
model "worker" {
  provider = "script"
  script   = "./agent.yaml"
  price {
    input  = 1
    output = 5
  }
}

model "reviewer" {
  provider = "script"
  script   = "./reviewer.yaml"
  price {
    input  = 3
    output = 15
  }
}

model "customer" {
  provider = "script"
  script   = "./customer.yaml"
  price {
    input  = 1
    output = 5
  }
}
