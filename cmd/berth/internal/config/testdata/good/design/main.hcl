experiment "effort-sweep" {
  datasets    = [dataset.terminal]
  environment = environment.podman
  repeat      = 5                       # repetitions of every cell × task

  matrix {
    agent  = [agent.terminus, agent.claude_code]
    model  = [model.opus, model.gpt]
    effort = ["low", "high"]
    time   = ["10m", "40m"]             # any other axis is free, readable as matrix.<axis> everywhere below

    exclude {
      agent = agent.claude_code
      model = model.gpt
    }
  }

  limits {                              # of the whole run
    in_flight = 32
    cost_usd  = 400
  }
  per_trial {                           # agent_time replaces the task's, absent keeps it
    agent_time = matrix.time
    cost_usd   = 5
  }
  retry {
    max = 2
    on  = ["environment_error", "rate_limited", "plugin_crashed"]
  }
}

dataset "terminal" {
  format  = "harbor"
  path    = "./tasks"
  include = ["hello-*"]
}

environment "podman" {
  plugin = "podman"
}

model "opus" {
  provider = "anthropic"                # the dialect: anthropic, openai, openai-chat, gemini, script
  name     = "claude-opus-4-8"
  api_key  = secret("ANTHROPIC_API_KEY")  # read at start, never written anywhere
  price {                               # USD per million tokens
    input        = 5
    cached_input = 0.5
    output       = 25
  }
}

model "gpt" {
  provider = "openai"
  name     = "gpt-5.4"
  api_key  = secret("OPENAI_API_KEY")
}

agent "terminus" {
  plugin = "terminus"
  config {
    reasoning_effort = matrix.effort
    max_turns        = 200
  }
}

agent "claude_code" {
  plugin = "claude-code"
}

verifier "judge" {                      # what the experiment adds to a verifier that a task names
  models = { default = model.gpt, filter = model.gpt }
}

user {                                  # plays the simulated user; own model, budget, sandbox
  agent = agent.terminus
  model = model.opus
}
