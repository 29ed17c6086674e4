experiment "x" {
  datasets    = [dataset.t]
  environment = environment.box
  agent       = agent.a
  repeat      = var.count
}

variable "count" {
  type    = number
  default = "three"
}

variable "given" {
  type = number
}

variable "typo" {
  type = strnig
}

variable "list" {
  type = list(number)
}

variable "reads" {
  default = var.count
}

variable "short" {
  type    = string
  default = "abc"
  validation {
    condition     = length(var.short) > 3
    error_message = "Too short: ${var.short}."
  }
  validation {
    condition = true
  }
}

variable "written" {
  sensitive = true
  default   = "canary-in-plain-text"
}

variable "password" {
  type      = string
  sensitive = true
  validation {
    condition     = length(var.password) > 100
    error_message = "Wrong: ${var.password}."
  }
  validation {
    condition     = tonumber(var.password) > 1
    error_message = "Not a number."
  }
}

dataset "t" {
  format = "harbor"
  path   = "tasks"
}

environment "box" {
  plugin = "box"
}

agent "a" {
  plugin = "loop"
}
