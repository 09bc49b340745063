"""What the examples' graphs are, node by node."""

from __future__ import annotations

__all__ = ["LISTINGS"]

LISTINGS = {
    "arithmetic.py:product": """
leaf leaf:1
leaf leaf:2
add:1 <- leaf:1, leaf:2
mul:1 <- add:1, leaf:1
output <- mul:1
""",
    "arithmetic.py:whole": """
leaf leaf:1
leaf leaf:2
add:1 <- leaf:1, leaf:2
mul:1 <- add:1, leaf:1
relu:1 <- mul:1
add:2 <- relu:1, add:1
output <- add:2
""",
    "arithmetic.py:cut": """
leaf leaf:1
leaf leaf:2
add:1 <- leaf:1, leaf:2
add:2 <- -, add:1
output <- add:2
""",
    "branches.py:joined": """
leaf leaf:1
mul:1 <- leaf:1, -
add:1 <- mul:1, -
softmax:1 <- add:1
mul:2 <- add:1, -
add:2 <- softmax:1, mul:2
output <- add:2
""",
    "branches.py:detached": """
leaf leaf:1
mul:1 <- leaf:1, -
add:1 <- mul:1, -
mul:2 <- add:1, -
add:2 <- -, mul:2
output <- add:2
""",
    "linear_regression.py:squared_loss": """
leaf leaf:1
mm:1 <- -, leaf:1
leaf leaf:2
add:1 <- mm:1, leaf:2
sub:1 <- add:1, -
pow:1 <- sub:1
mean:1 <- pow:1
output <- mean:1
""",
    "mlp_critic.py:values": """
parameter net.4.bias
parameter net.2.bias
parameter net.0.bias
parameter net.0.weight
net.0/t:1 <- net.0.weight
net.0/addmm:1 <- net.0.bias, -, net.0/t:1
net.1/tanh:1 <- net.0/addmm:1
parameter net.2.weight
net.2/t:1 <- net.2.weight
net.2/addmm:1 <- net.2.bias, net.1/tanh:1, net.2/t:1
net.3/tanh:1 <- net.2/addmm:1
parameter net.4.weight
net.4/t:1 <- net.4.weight
net.4/addmm:1 <- net.4.bias, net.3/tanh:1, net.4/t:1
squeeze:1 <- net.4/addmm:1
output/base <- net.4/addmm:1
output <- squeeze:1, view of output/base
""",
    "policy.py:relaxed": """
parameter head.bias
parameter hidden.bias
parameter hidden.weight
hidden/t:1 <- hidden.weight
hidden/addmm:1 <- hidden.bias, -, hidden/t:1
relu:1 <- hidden/addmm:1
parameter head.weight
head/t:1 <- head.weight
head/addmm:1 <- head.bias, relu:1, head/t:1
add:1 <- head/addmm:1, -
div:1 <- add:1, -
softmax:1 <- div:1
add:2 <- -, softmax:1
output <- add:2
""",
    "gradient_penalty.py:penalty": """
parameter 2.weight
2/t:1 <- 2.weight
t:1 <- 2/t:1
mm:1 <- -, t:1
parameter 0.bias
leaf leaf:1
parameter 0.weight
0/t:1 <- 0.weight
0/addmm:1 <- 0.bias, leaf:1, 0/t:1
1/tanh:1 <- 0/addmm:1
tanh_backward:1 <- mm:1, 1/tanh:1
t:2 <- 0/t:1
mm:2 <- tanh_backward:1, t:2
linalg_vector_norm:1 <- mm:2
sub:1 <- linalg_vector_norm:1, -
pow:1 <- sub:1
mean:1 <- pow:1
output <- mean:1
""",
    "lstm_cell.py:step": """
parameter input_gates.bias
parameter input_gates.weight
input_gates/t:1 <- input_gates.weight
input_gates/addmm:1 <- input_gates.bias, -, input_gates/t:1
parameter hidden_gates.bias
parameter hidden_gates.weight
hidden_gates/t:1 <- hidden_gates.weight
hidden_gates/addmm:1 <- hidden_gates.bias, -, hidden_gates/t:1
add:1 <- input_gates/addmm:1, hidden_gates/addmm:1
split:1 <- add:1
sigmoid:1 <- split:1#3
sigmoid:2 <- split:1#1
mul:1 <- sigmoid:2, -
sigmoid:3 <- split:1
tanh:1 <- split:1#2
mul:2 <- sigmoid:3, tanh:1
add:2 <- mul:1, mul:2
tanh:2 <- add:2
mul:3 <- sigmoid:1, tanh:2
output:hidden <- mul:3
output:cell <- add:2
""",
    "dcgan.py:discriminator_step": """
parameter discriminator.0.weight
discriminator.0/convolution:1 <- -, discriminator.0.weight, -
discriminator.1/leaky_relu:1 <- discriminator.0/convolution:1
parameter discriminator.2.weight
discriminator.2/convolution:1 <- discriminator.1/leaky_relu:1, discriminator.2.weight, -
parameter discriminator.3.weight
parameter discriminator.3.bias
buffer discriminator.3.running_mean
buffer discriminator.3.running_var
discriminator.3/native_batch_norm:1 <- discriminator.2/convolution:1, discriminator.3.weight, discriminator.3.bias
discriminator.4/leaky_relu:1 <- discriminator.3/native_batch_norm:1
parameter discriminator.5.weight
discriminator.5/convolution:1 <- discriminator.4/leaky_relu:1, discriminator.5.weight, -
discriminator.6/view:1 <- discriminator.5/convolution:1
binary_cross_entropy_with_logits:1 <- discriminator.6/view:1, -
discriminator.0/convolution:2 <- -, discriminator.0.weight, -
discriminator.1/leaky_relu:2 <- discriminator.0/convolution:2
discriminator.2/convolution:2 <- discriminator.1/leaky_relu:2, discriminator.2.weight, -
discriminator.3/native_batch_norm:2 <- discriminator.2/convolution:2, discriminator.3.weight, discriminator.3.bias
discriminator.4/leaky_relu:2 <- discriminator.3/native_batch_norm:2
discriminator.5/convolution:2 <- discriminator.4/leaky_relu:2, discriminator.5.weight, -
discriminator.6/view:2 <- discriminator.5/convolution:2
binary_cross_entropy_with_logits:2 <- discriminator.6/view:2, -
add:1 <- binary_cross_entropy_with_logits:1, binary_cross_entropy_with_logits:2
output <- add:1
""",
    "dcgan.py:generator_step": """
parameter generator.0.weight
generator.0/convolution:1 <- -, generator.0.weight, -
parameter generator.1.weight
parameter generator.1.bias
buffer generator.1.running_mean
buffer generator.1.running_var
generator.1/native_batch_norm:1 <- generator.0/convolution:1, generator.1.weight, generator.1.bias
generator.2/relu:1 <- generator.1/native_batch_norm:1
parameter generator.3.weight
generator.3/convolution:1 <- generator.2/relu:1, generator.3.weight, -
parameter generator.4.weight
parameter generator.4.bias
buffer generator.4.running_mean
buffer generator.4.running_var
generator.4/native_batch_norm:1 <- generator.3/convolution:1, generator.4.weight, generator.4.bias
generator.5/relu:1 <- generator.4/native_batch_norm:1
parameter generator.6.weight
generator.6/convolution:1 <- generator.5/relu:1, generator.6.weight, -
generator.7/tanh:1 <- generator.6/convolution:1
parameter discriminator.0.weight
discriminator.0/convolution:1 <- generator.7/tanh:1, discriminator.0.weight, -
discriminator.1/leaky_relu:1 <- discriminator.0/convolution:1
parameter discriminator.2.weight
discriminator.2/convolution:1 <- discriminator.1/leaky_relu:1, discriminator.2.weight, -
parameter discriminator.3.weight
parameter discriminator.3.bias
buffer discriminator.3.running_mean
buffer discriminator.3.running_var
discriminator.3/native_batch_norm:1 <- discriminator.2/convolution:1, discriminator.3.weight, discriminator.3.bias
discriminator.4/leaky_relu:1 <- discriminator.3/native_batch_norm:1
parameter discriminator.5.weight
discriminator.5/convolution:1 <- discriminator.4/leaky_relu:1, discriminator.5.weight, -
discriminator.6/view:1 <- discriminator.5/convolution:1
binary_cross_entropy_with_logits:1 <- discriminator.6/view:1, -
output <- binary_cross_entropy_with_logits:1
""",
}
