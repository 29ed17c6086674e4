experiment "x" {
  retry {
    on = ["rate_limited"]
  }
}

dataset "t" {
}

environment "box" {
}

agent "a" {
}

model "m" {
}

user {
}

variable "v" {
}

dataset "s" {
  format = "harbor"
  path   = "tasks"
  success {
    key = "reward"
  }
}
