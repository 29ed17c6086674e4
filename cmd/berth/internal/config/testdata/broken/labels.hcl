experiment {
}

experiment "a/b" {
}

dataset "t" "u" {
}

agent "with space" {
  plugin = "loop"
}

agent "" {
  plugin = "loop"
}

user "x" {
}

locals "y" {
}
