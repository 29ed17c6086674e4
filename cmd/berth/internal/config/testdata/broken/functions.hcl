experiment "x" {
  datasets    = [dataset.t]
  environment = environment.box
  agent       = agent.a
}

dataset "t" {
  format  = file("../secret.txt")
  path    = file("/etc/passwd")
  include = glob("../*")
  exclude = glob("/etc/*")
}

environment "box" {
  plugin = file("no-such-file")
  env = {
    A = env("NOT_SET")
    B = fileexists("../secret.txt")
    C = jsondecode("{")
    D = yamldecode("a: [")
    E = yamldecode("a: &x 1\nb: *x")
    F = file("tasks")
    G = format("%d", "x")
    H = regex("(", "x")
    I = element([], 0)
    J = lookup({}, "a")
    K = join(",")
    L = nofunction(1)
    M = fil("x")
    N = base64decode("/w==")
    O = env("A", "b", "c")
  }
}

agent "a" {
  plugin = "loop"
}
