experiment "x" {
  datasets = [dataset.t
  repeat = 3
}

dataset "t" {
  path "tasks"
}
