# Secrets alone, in text, in lists, in maps, through locals and functions.
experiment "secrets" {
  datasets    = [dataset.tasks]
  environment = environment.box
  agent       = agent.loop
  model       = model.one
}

locals {
  bearer  = "Bearer ${secret("KEY")}"
  headers = { Authorization = local.bearer, Accept = "text/plain" }
}

dataset "tasks" {
  format = "harbor"
  path   = "tasks"
}

environment "box" {
  plugin = "box"
  env = {
    PLAIN  = "x"
    TOKEN  = secret("KEY")
    UPPER  = upper(secret("KEY"))
    REGION = env("REGION")
  }
  config {
    server "one" {
      command = "serve"
      args    = ["--key", secret("KEY"), "--big", "12345678901234567890"]
    }
  }
}

agent "loop" {
  plugin = "loop"
  config {
    token   = secret("OTHER")
    headers = local.headers
    words   = concat(["first"], [secret("KEY")])
    effort  = "${var.password}-x"
    extra   = { list = ["a", "${secret("KEY")}!"], n = 12345678901234567890 }
  }
}

variable "password" {
  type      = string
  sensitive = true
}

model "one" {
  provider = "openai"
  name     = "one"
  api_key  = secret("KEY")
  base_url = "https://example.org/v1"
}
