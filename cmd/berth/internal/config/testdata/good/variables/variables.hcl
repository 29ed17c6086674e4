variable "count" {
  type        = number
  default     = 3
  description = "Given in a file."
  validation {
    condition     = var.count > 0 && var.count < 100
    error_message = "count is ${var.count}."
  }
}

variable "effort" {
  type = string
}

variable "sizes" {
  type = list(number)
}

variable "limits" {
  type = object({
    in_flight = number
    cost      = optional(number, 3)
  })
}

variable "later" {
  default = "any"
}

variable "nothing" {
  type    = string
  default = null
}

variable "REGION_of_host" {
  type    = string
  default = "unset"
}

variable "password" {
  type      = string
  sensitive = true
}
